// What stands around the panes: the list of stages, search, changes, tables, addresses, keys.  Continues levels.js.

// -------------------------------------------------------------------------------------------------------------- sidebar

function drawStages() {
  const slowest = Math.max(...DATA.stages.map(s => s.seconds), 1e-9);
  const total = stage => Object.values(stage.ops).reduce((sum, count) => sum + count, 0);
  const list = $("#stages");
  if (DATA.sources.length) list.append(element("h3", {}, "Model"));
  for (const source of DATA.sources)
    list.append(stageButton(source.name, "", source.title, "", `${source.lines} lines`, ""));
  list.append(element("h3", {}, "Stages"));
  let before = 0;
  for (const stage of DATA.stages) {
    const count = total(stage), change = count - before;
    const delta = count && before ? (change > 0 ? `+${change}` : change < 0 ? `−${-change}` : "±0") : "";
    const under = count ? `${stage.level} · ${count} ops` : `${stage.level} · ${stage.lines} lines`;
    const button = stageButton(stage.name, String(stage.index).padStart(2, "0"), stage.name, time(stage.seconds), under, delta);
    button.append(element("span", {class: "timebar"}, element("i", {style: `width:${100 * stage.seconds / slowest}%`})));
    button.title = stage.doc + (stage.share == null ? "" : ` · ${(100 * stage.share).toFixed(1)} % of it knows its line of the model`);
    list.append(button);
    if (count) before = count;
  }
}

function stageButton(name, index, title, right, under, delta) {
  return element("button", {"data-name": name, onclick: () => show(name)},
    element("span", {class: "index"}, index), element("span", {class: "name"}, title, element("span", {class: "pill", hidden: ""})),
    element("span", {class: "time"}, right), element("span", {class: "under"}, under), element("span", {class: "delta"}, delta));
}

const time = seconds => seconds >= 1 ? `${seconds.toFixed(1)} s` : `${(1e3 * seconds).toFixed(seconds < 0.01 ? 1 : 0)} ms`;

function markOpen() {
  const open = new Set(panes.map(pane => pane.name));
  $$("#stages button").forEach(button => button.classList.toggle("open", open.has(button.dataset.name)));
}

// --------------------------------------------------------------------------------------------------------------- search

const found = {
  word: "",
  // Columns of the hits in one line.
  inLine(text, i) {
    if (!this.word) return [];
    const line = text.lines[i].toLowerCase(), columns = [];
    for (let at = line.indexOf(this.word); at >= 0; at = line.indexOf(this.word, at + this.word.length)) columns.push(at);
    return columns;
  },
  lines(text) {
    if (!this.word || !text) return [];
    text.lower ??= text.lines.map(line => line.toLowerCase());
    return [...text.lower.keys()].filter(i => text.lower[i].includes(this.word));
  },
};

async function search(word) {
  found.word = word.toLowerCase();
  panes.forEach(pane => pane.text && pane.light(false));
  const list = $("#results");
  list.hidden = !word;
  if (!word) return;
  const parts = [];
  for (const name of names()) {
    const text = await load(name), hits = found.lines(text);
    if (found.word !== word.toLowerCase()) return;
    if (!hits.length) continue;
    parts.push(element("div", {class: "group"}, `${name.replace("source:", "")} · ${hits.length}`));
    for (const line of hits.slice(0, 8))
      parts.push(element("button", {onclick: () => { list.hidden = true; show(name, line); }},
        element("span", {class: "at"}, String(line + 1)), element("code", {}, text.lines[line].trim())));
  }
  list.replaceChildren(...(parts.length ? parts : [element("div", {class: "group"}, "nothing found")]));
}

// -------------------------------------------------------------------------------------------------------------- changes

let change = null;  // Rows of the diff

function drawChanges() {
  const stages = DATA.stages.filter(stage => stage.readable), neighbours = DATA.diffs.find(diff => known(diff.b));
  const options = () => stages.map(stage => element("option", {value: stage.name}, stage.name));
  for (const id of ["#before", "#after"]) {
    $(id).replaceChildren(...options());
    $(id).onchange = () => showPair($("#before").value, $("#after").value);
  }
  change = new Rows($("#change"));
  const [a, b] = neighbours ? [neighbours.a, neighbours.b] : [stages[0].name, stages[stages.length - 1].name];
  showPair(a, b);
}

const known = name => DATA.stages.some(stage => stage.name === name);

// Any two stages: neighbours of one language were compared when the page was made, with the passes between them.
async function showPair(a, b) {
  [$("#before").value, $("#after").value] = [a, b];
  remember();
  if (DATA.diffs.some(diff => diff.a === a && diff.b === b)) return showStage(b);
  const [textA, textB] = await Promise.all([load(a), load(b)]);
  $("#steps").replaceChildren(element("button", {class: "open"}, element("span", {class: "name"}, `${a} → ${b}`)));
  showDiff({a, b, runs: compareLines(textA.lines, textB.lines)});
}

function showStage(name) {
  const stage = DATA.stages.find(s => s.name === name), whole = DATA.diffs.find(d => d.b === name), list = $("#steps");
  [$("#before").value, $("#after").value] = [whole.a, whole.b];
  const open = (diff, button) => { $$("button", list).forEach(b => b.classList.toggle("open", b === button)); showDiff(diff); };
  const all = element("button", {onclick: () => open(whole, all)},
    element("span", {class: "name"}, "the whole stage"), element("span", {class: "muted"}, time(stage.seconds)));
  const parts = [all];
  if (stage.steps.length) for (const step of stage.steps) {
    const diff = DATA.diffs.find(d => d.b === step.blob);
    const button = element("button", {class: diff ? "" : "same", title: step.name, onclick: () => diff && open(diff, button)},
      element("span", {class: "name"}, step.name), element("span", {class: "muted"}, diff ? time(step.seconds) : "no change"));
    parts.push(button);
  } else {
    parts.push(...stage.passes.map(name => element("button", {class: "same", title: name}, element("span", {class: "name"}, name))));
    parts.push(element("p", {}, "The IR after each pass is in dumps made with: mlirstack lower … --passes"));
  }
  list.replaceChildren(...parts);
  open(whole, all);
}

async function showDiff(diff) {
  const [a, b] = await Promise.all([load(diff.a), load(diff.b)]);
  const rows = [];
  let removed = 0, added = 0;
  const equal = (from, to) => { for (let i = from; i < to; i++) rows.push({text: b, line: i, kind: "", old: null}); };
  diff.runs.forEach(([changed, a0, a1, b0, b1], number) => {
    if (changed) {
      for (let i = a0; i < a1; i++) rows.push({text: a, line: i, kind: "del"});
      for (let i = b0; i < b1; i++) rows.push({text: b, line: i, kind: "add"});
      removed += a1 - a0; added += b1 - b0;
      return;
    }
    const head = number ? CONTEXT : 0, tail = number < diff.runs.length - 1 ? CONTEXT : 0;
    if (b1 - b0 <= head + tail + 1) return equal(b0, b1);
    equal(b0, b0 + head);
    rows.push({kind: "fold", from: b0 + head, to: b1 - tail});
    equal(b1 - tail, b1);
  });
  $("#pairstat").textContent = removed || added ? `−${removed} +${added} lines; renumbered values count as equal` : "equal but for the numbers of values";
  const draw = () => change.show(rows.length, Math.max(longest(a.lines), longest(b.lines)), i => {
    const {kind, text, line, from, to} = rows[i];
    if (kind === "fold") return element("div", {class: "row fold", onclick: () => {
      rows.splice(i, 1, ...Array.from({length: to - from}, (_, k) => ({text: b, line: from + k, kind: ""})));
      draw();
    }}, element("span", {class: "gutter"}, "⋯"), `${to - from} equal lines`);
    const sign = {del: "−", add: "+"}[kind] ?? " ";
    return element("div", {class: "row " + kind}, element("span", {class: "gutter"}, `${line + 1} ${sign}`), ...code(text, line));
  });
  $("#change").scrollTop = 0;
  draw();
}

// ---------------------------------------------------------------------------------------------- operations and kernels

function drawOperations() {
  const stages = DATA.stages.filter(stage => Object.keys(stage.ops).length), totals = new Map();
  for (const stage of stages) for (const [op, count] of Object.entries(stage.ops)) totals.set(op, (totals.get(op) ?? 0) + count);
  const ops = [...totals].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0])).map(([op]) => op);
  $("#ops").append(
    element("thead", {}, element("tr", {}, element("th", {}, "operation"), ...stages.map(s => element("th", {class: "n"}, s.name)))),
    element("tbody", {}, ...ops.map(op => element("tr", {}, element("td", {}, op), ...stages.map(s => element("td", {class: "n"}, String(s.ops[op] ?? "")))))));
}

function drawKernels() {
  for (const button of $$("[data-kernel]")) button.onclick = () => {
    showView("levels");
    select("", -1, DATA.sets[DATA.kernels[button.dataset.kernel] ?? 0], button.dataset.kernel);
  };
}

// ------------------------------------------------------------------------------------------------- views, links, keys

let view = "levels", ready = false;

function showView(name) {
  view = name;
  $$("#views button").forEach(button => button.setAttribute("aria-selected", button.dataset.view === name));
  $$("main > section").forEach(section => { section.hidden = section.dataset.view !== name; });
  if (name === "levels") panes.forEach(pane => pane.text && pane.light(false));
  remember();
}

// The address says what is shown: #v=levels&p=linalg,ptx&l=linalg:23, #v=changes&d=linalg,fused
function remember() {
  if (!ready) return;
  const parts = new URLSearchParams({v: view, p: panes.map(pane => pane.name).join(",")});
  if (selection.line >= 0) parts.set("l", `${selection.name}:${selection.line + 1}`);
  if (view === "changes") parts.set("d", `${$("#before").value},${$("#after").value}`);
  history.replaceState(null, "", "#" + parts);
}

async function restore() {
  ready = false;
  const parts = new URLSearchParams(location.hash.slice(1)), here = new Set(names());
  const wanted = (parts.get("p") ?? "").split(",").filter(name => here.has(name));
  panes.splice(0, panes.length, ...(wanted.length ? wanted : firstPanes()).map(name => new Pane(name)));
  placePanes();
  activate(0);
  showView($(`#views [data-view="${CSS.escape(parts.get("v") ?? "")}"]`) ? parts.get("v") : "levels");
  const pair = (parts.get("d") ?? "").split(",");
  if (pair.length === 2 && pair.every(known)) showPair(...pair);
  await Promise.all(panes.map(pane => pane.opened));
  const [, name, number] = /^(.*):(\d+)$/.exec(parts.get("l") ?? "") ?? [];
  if (here.has(name)) {
    const text = await load(name), line = number - 1;
    select(name, line, DATA.sets[text.sets[line] ?? 0], (text.lines[line] ?? "").trim());
    panes.find(pane => pane.name === name)?.rows.reveal(line);
  } else clear();
  ready = true;
}

// The model, a level of tensors, and what runs.
function firstPanes() {
  const has = name => DATA.stages.some(stage => stage.name === name), stages = DATA.stages.filter(stage => stage.readable);
  const machine = [...stages].reverse().find(stage => ["asm", "ptx"].includes(stage.level)) ?? stages[stages.length - 1];
  const middle = ["fused", "linalg", "torch"].find(has) ?? stages[0].name;
  return [...new Set([DATA.sources[0]?.name ?? stages[0].name, middle, machine.name])];
}

const themes = ["auto", "light", "dark"];
function setTheme(name) {
  const dark = name === "dark" || (name === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  Object.assign(document.documentElement.dataset, {choice: name, theme: dark ? "dark" : "light"});
  try { localStorage.setItem("mlirstack-theme", name); } catch { /* a page opened from a file may have no storage */ }
  panes.forEach(pane => pane.text && pane.drawRuler());
}
const nextTheme = () => setTheme(themes[(themes.indexOf(document.documentElement.dataset.choice) + 1) % themes.length]);

const keys = {
  j: () => panes[active].step(1), k: () => panes[active].step(-1),
  n: () => panes[active].step(1, found.lines(panes[active].text)), N: () => panes[active].step(-1, found.lines(panes[active].text)),
  "[": () => stepStage(-1), "]": () => stepStage(1), h: () => activate(active - 1), l: () => activate(active + 1),
  "+": () => addPane(active), "-": () => closePane(active), "/": () => $("#find").focus(), t: nextTheme,
  "?": () => $("#keys").showModal(), Escape: () => { $("#find").value = ""; search(""); clear(); },
};
function stepStage(step) {
  const next = names()[names().indexOf(panes[active].name) + step];
  if (next) panes[active].open(next);
}

document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("#keys").open) return;
  if (event.target === $("#find")) {
    if (event.key === "Escape") { $("#find").blur(); keys.Escape(); }
    if (event.key === "Enter") { $("#results button")?.click(); $("#find").blur(); }
    return;
  }
  if (event.target.tagName === "SELECT") return;
  const tab = $$("#views button")[event.key - 1];
  if (tab) showView(tab.dataset.view);
  else if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
});

async function start() {
  let stored = null;
  try { stored = localStorage.getItem("mlirstack-theme"); } catch { /* see setTheme */ }
  setTheme(themes.includes(stored) ? stored : "auto");
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTheme(document.documentElement.dataset.choice));
  DATA = await unpack($("#data"));
  for (const [node, name] of DATA.nodes) nodeNames.set(node, name);
  drawStages();
  drawOperations();
  drawKernels();
  drawChanges();
  $$("#views button").forEach(button => { button.onclick = () => showView(button.dataset.view); });
  $("#theme").onclick = nextTheme;
  $("#help").onclick = keys["?"];
  let waiting = 0;
  $("#find").oninput = event => { clearTimeout(waiting); waiting = setTimeout(() => search(event.target.value.trim()), 120); };
  document.addEventListener("click", event => { if (!event.target.closest(".find")) $("#results").hidden = true; });
  addEventListener("hashchange", restore);
  await restore();
  document.documentElement.dataset.ready = "yes";
}
start();
