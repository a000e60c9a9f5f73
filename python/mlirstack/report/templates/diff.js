// Differences between the texts of any two stages, as mlirstack.ir.diff finds them: renumbered values count as equal.

const NAME = /[%^][\w$.-]+(?:#\d+)?|#(?:map|set|loc)\d*\b|![0-9]+\b/g;
const LARGEST_TABLE = 4e6;  // cells; larger gaps without a line in common count as changed

// [changed, lines of a from, to, lines of b from, to] for all lines of both, in order.
function compareLines(a, b) {
  const heading = lines => Number(/^\S+ mlirstack stage /.test(lines[0] ?? ""));
  const skipA = heading(a), skipB = heading(b), keys = lines => lines.map(line => line.replace(NAME, "%"));
  const matches = commonLines(keys(a.slice(skipA)), keys(b.slice(skipB))), renaming = new Map(), runs = [];
  const add = (changed, a0, a1, b0, b1) => {
    const last = runs[runs.length - 1];
    if (last?.[0] === changed) [last[2], last[4]] = [a1, b1];
    else runs.push([changed, a0, a1, b0, b1]);
  };
  let atA = skipA, atB = skipB;
  for (const [i, j] of matches) {
    const lineA = i + skipA, lineB = j + skipB;
    if (lineA > atA || lineB > atB) add(1, atA, lineA, atB, lineB);
    add(agrees(renaming, a[lineA], b[lineB]) ? 0 : 1, lineA, lineA + 1, lineB, lineB + 1);
    [atA, atB] = [lineA + 1, lineB + 1];
  }
  if (atA < a.length || atB < b.length) add(1, atA, a.length, atB, b.length);
  return runs;
}

// Do the names of two lines, one by one, continue the renaming?  The first name of a line is defined anew by it.
function agrees(renaming, a, b) {
  const old = a.match(NAME) ?? [], now = b.match(NAME) ?? [];
  const same = old.slice(1).every((name, k) => (renaming.get(name) ?? now[k + 1]) === now[k + 1]);
  old.forEach((name, k) => { if (!renaming.has(name) || name === old[0]) renaming.set(name, k && name === old[0] ? now[0] : now[k]); });
  return same;
}

// Pairs [i, j] with a[i] equal to b[j], both ascending: lines that stand once in both first ("patience"), then what is between.
function commonLines(a, b) {
  const found = [], waiting = [[0, a.length, 0, b.length]];
  while (waiting.length) {
    let [a0, a1, b0, b1] = waiting.pop();
    for (; a0 < a1 && b0 < b1 && a[a0] === b[b0]; a0++, b0++) found.push([a0, b0]);
    for (; a0 < a1 && b0 < b1 && a[a1 - 1] === b[b1 - 1]; a1--, b1--) found.push([a1 - 1, b1 - 1]);
    if (a0 === a1 || b0 === b1) continue;
    const anchors = ascending(unique(a, a0, a1, b, b0, b1));
    if (!anchors.length) {
      if ((a1 - a0) * (b1 - b0) <= LARGEST_TABLE) found.push(...longestCommon(a, a0, a1, b, b0, b1));
      continue;
    }
    let [beginA, beginB] = [a0, b0];
    for (const [i, j] of [...anchors, [a1, b1]]) {
      waiting.push([beginA, i, beginB, j]);
      [beginA, beginB] = [i + 1, j + 1];
    }
    found.push(...anchors);
  }
  return found.sort((x, y) => x[0] - y[0]);
}

// Pairs of lines that stand exactly once in each range, by their place in a.
function unique(a, a0, a1, b, b0, b1) {
  const places = (lines, from, to) => {
    const at = new Map();
    for (let i = from; i < to; i++) at.set(lines[i], at.has(lines[i]) ? -1 : i);
    return at;
  };
  const inB = places(b, b0, b1);
  return [...places(a, a0, a1)].map(([line, i]) => [i, inB.get(line) ?? -1]).filter(([i, j]) => i >= 0 && j >= 0)
    .sort((x, y) => x[0] - y[0]);
}

// The longest part of the pairs whose second numbers ascend.
function ascending(pairs) {
  const ends = [], before = new Array(pairs.length).fill(-1);
  pairs.forEach(([, j], k) => {
    let low = 0, high = ends.length;
    while (low < high) { const middle = (low + high) >> 1; if (pairs[ends[middle]][1] < j) low = middle + 1; else high = middle; }
    if (low) before[k] = ends[low - 1];
    ends[low] = k;
  });
  const chosen = [];
  for (let k = ends.length ? ends[ends.length - 1] : -1; k >= 0; k = before[k]) chosen.push(pairs[k]);
  return chosen.reverse();
}

// The longest common subsequence of two ranges, by the table of its lengths.
function longestCommon(a, a0, a1, b, b0, b1) {
  const width = b1 - b0 + 1, lengths = new Uint16Array((a1 - a0 + 1) * width), found = [];
  for (let i = a1 - a0 - 1; i >= 0; i--) for (let j = b1 - b0 - 1; j >= 0; j--)
    lengths[i * width + j] = a[a0 + i] === b[b0 + j] ? lengths[(i + 1) * width + j + 1] + 1
      : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
  for (let i = 0, j = 0; i < a1 - a0 && j < b1 - b0;) {
    if (a[a0 + i] === b[b0 + j]) found.push([a0 + i++, b0 + j++]);
    else if (lengths[(i + 1) * width + j] >= lengths[i * width + j + 1]) i++;
    else j++;
  }
  return found;
}
