"use strict";
// The page of one dump.  Texts are unpacked when they are first shown; only the rows that can be seen are elements.
// A line belongs to a set of places of the model (DATA.sets); two lines belong together where their sets meet.

const ROW = 18, CONTEXT = 3;
const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "class") made.className = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.filter(child => child != null));
  return made;
}

async function unpack(node) {
  const bytes = Uint8Array.from(atob(node.textContent), c => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

// ------------------------------------------------------------------------------------------------------------ documents

let DATA;
const documents = new Map();  // name → promise of a document

// One text: its lines, where the colour runs of each begin, and the set of places of each.
function load(name) {
  if (!documents.has(name)) {
    const node = $(`script[data-blob="${CSS.escape(name)}"]`);
    documents.set(name, unpack(node).then(({text, runs, sets}) => {
      const lines = text.split("\n"), starts = new Uint32Array(lines.length + 1);
      for (let at = 0, line = 0; line < lines.length; at += 2)
        if (runs[at] === 0) starts[++line] = at + 2;
      return {name, lines, lower: null, runs, starts, sets};
    }));
  }
  return documents.get(name);
}

// The spans of one line.
function code(text, line) {
  const parts = [];
  let at = 0;
  for (let run = text.starts[line]; text.runs[run] > 0; run += 2) {
    const end = at + text.runs[run], name = DATA.classes[text.runs[run + 1]], piece = text.lines[line].slice(at, end);
    parts.push(name ? element("span", {class: "c-" + name}, piece) : piece);
    at = end;
  }
  return parts;
}

// ------------------------------------------------------------------------------------------------------------ selection

const selection = {name: "", line: -1, origins: new Set(), strength: new Uint8Array(0), text: ""};

// For each set of places: 2 where all of it is selected, 1 where a part is, 0 where none is.
function select(name, line, members, text) {
  Object.assign(selection, {name, line, origins: new Set(members), text});
  selection.strength = Uint8Array.from(DATA.sets, set => {
    const held = set.reduce((count, place) => count + selection.origins.has(place), 0);
    return held === 0 ? 0 : held === set.length ? 2 : 1;
  });
  panes.forEach(pane => pane.light(pane.text?.name !== name));
  showStatus();
  countLit();
  remember();
}

function clear() { select("", -1, [], ""); }

function showStatus() {
  const status = $("#status");
  status.replaceChildren();
  if (!selection.origins.size) {
    const hint = selection.name ? "this line comes from no line of the model" : "click a line to see where it comes from and what becomes of it";
    status.append(hint);
    return;
  }
  const chosen = [...selection.origins].map(number => DATA.origins[number]);
  const places = [...new Set(chosen.map(origin => `${origin.file}:${origin.line}`))];
  status.append(element("b", {}, places.slice(0, 4).join("  ") + (places.length > 4 ? `  +${places.length - 4}` : "")));
  const nodes = [...new Set(chosen.map(origin => origin.node).filter(Boolean))].sort((a, b) => a - b);
  for (const node of nodes.slice(0, 14)) status.append(element("span", {class: "chip"}, nodeNames.get(node) ?? `line ${node}`));
  if (nodes.length > 14) status.append(`+${nodes.length - 14}`);
}

const nodeNames = new Map();  // line of the graph → name of the node

async function countLit() {
  for (const button of $$("#stages button")) {
    const pill = $(".pill", button);
    if (!selection.origins.size) { pill.hidden = true; continue; }
    const text = await load(button.dataset.name);
    const count = text.sets.reduce((sum, set) => sum + (selection.strength[set] > 0), 0);
    pill.hidden = !count;
    pill.textContent = count;
  }
}

// ---------------------------------------------------------------------------------------------------------- virtual rows

// A scroller that makes elements for the rows in sight only; make(i) gives one.
class Rows {
  constructor(scroller) {
    this.scroller = scroller;
    this.inner = element("div", {class: "rows"});
    scroller.replaceChildren(this.inner);
    scroller.addEventListener("scroll", () => this.schedule());
    new ResizeObserver(() => this.schedule()).observe(scroller);
  }
  show(count, width, make) {
    Object.assign(this, {count, make});
    this.inner.style.height = `${count * ROW}px`;
    this.inner.style.minWidth = `calc(70px + ${Math.min(width, 4000)}ch)`;
    this.draw();
  }
  schedule() {
    if (!this.pending) this.pending = requestAnimationFrame(() => { this.pending = 0; this.draw(); });
  }
  draw() {
    if (!this.make) return;
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / ROW) - 20);
    const last = Math.min(this.count, Math.ceil((this.scroller.scrollTop + this.scroller.clientHeight) / ROW) + 20);
    const rows = [];
    for (let i = first; i < last; i++) {
      const row = this.make(i);
      row.style.top = `${i * ROW}px`;
      rows.push(row);
    }
    this.inner.replaceChildren(...rows);
  }
  reveal(i) {
    const top = i * ROW, {scrollTop, clientHeight} = this.scroller;
    if (top < scrollTop + ROW || top > scrollTop + clientHeight - 3 * ROW) this.scroller.scrollTop = top - clientHeight / 3;
    this.draw();
  }
}

const longest = lines => lines.reduce((most, line) => Math.max(most, line.length), 0);

// ---------------------------------------------------------------------------------------------------------------- panes

const panes = [];
let active = 0;

class Pane {
  constructor(name) {
    this.choice = element("select", {"aria-label": "level", onchange: () => this.open(this.choice.value)}, ...levelOptions());
    this.lit = element("span", {class: "lit"});
    this.scroller = element("div", {class: "scroller", tabindex: 0});
    this.ruler = element("canvas", {class: "ruler", onclick: event => this.jump(event)});
    this.node = element("div", {class: "pane", onmousedown: () => activate(panes.indexOf(this))},
      element("div", {class: "bar"}, this.choice, this.lit,
        element("button", {class: "plain add-pane", title: "another level beside this one (+)", onclick: () => addPane(panes.indexOf(this))}, "+"),
        element("button", {class: "plain close-pane", title: "close (−)", onclick: () => closePane(panes.indexOf(this))}, "×")),
      element("div", {class: "view"}, this.scroller, this.ruler));
    this.rows = new Rows(this.scroller);
    this.scroller.addEventListener("click", event => this.pick(event));
    this.opened = this.open(name);
  }
  async open(name, line = -1) {
    this.name = this.choice.value = name;
    const text = await load(name);
    if (this.name !== name) return;
    this.text = text;
    this.scroller.scrollTop = 0;
    this.rows.show(text.lines.length, longest(text.lines), i => this.row(i));
    this.light(line < 0);
    const linked = text.sets.findIndex(set => set > 0);  // a file of a model begins with imports and other models
    if (line >= 0) this.rows.reveal(line);
    else if (name.startsWith("source:") && !selection.origins.size && linked > 0) this.rows.reveal(linked);
    markOpen();
    remember();
  }
  strength(i) { return selection.strength[this.text.sets[i] ?? 0] ?? 0; }
  row(i) {
    const {text} = this, strength = this.strength(i), picked = selection.name === text.name && selection.line === i;
    const kind = [picked && "picked", strength === 2 && "strong", strength === 1 && "weak", text.sets[i] && "linked"];
    const row = element("div", {class: "row " + kind.filter(Boolean).join(" "), "data-line": i + 1},
      element("span", {class: "gutter"}, String(i + 1)), ...code(text, i));
    for (const at of found.inLine(text, i))
      row.append(element("mark", {style: `left:calc(54px + ${at}ch);width:${found.word.length}ch`}));
    return row;
  }
  // Draw what the selection lights up here, and bring the first such line into sight.
  light(scroll) {
    if (!this.text) return;
    this.hits = [];
    this.text.sets.forEach((set, i) => { if (selection.strength[set]) this.hits.push(i); });
    this.lit.textContent = this.hits.length ? `${this.hits.length} lit` : "";
    const inSight = this.hits.some(i => i * ROW >= this.scroller.scrollTop && (i + 1) * ROW <= this.scroller.scrollTop + this.scroller.clientHeight);
    const best = this.hits.find(i => this.strength(i) === 2) ?? this.hits[0];
    if (scroll && best !== undefined && !inSight) this.rows.reveal(best);
    this.rows.draw();
    this.drawRuler();
  }
  drawRuler() {
    const {ruler} = this, height = ruler.height = this.scroller.clientHeight || 1, count = this.text.lines.length;
    const style = getComputedStyle(document.documentElement), pen = ruler.getContext("2d");
    ruler.width = 10;
    pen.fillStyle = style.getPropertyValue("--lit-edge");
    for (const i of this.hits) pen.fillRect(2, i / count * height, 6, 2);
    pen.fillStyle = style.getPropertyValue("--series-1");
    for (const i of found.lines(this.text)) pen.fillRect(2, i / count * height, 6, 2);
  }
  jump(event) {
    this.rows.reveal(Math.floor(event.offsetY / this.ruler.clientHeight * this.text.lines.length));
  }
  pick(event) {
    const row = event.target.closest(".row");
    if (!row || String(getSelection())) return;
    const line = row.dataset.line - 1;
    if (selection.name === this.text.name && selection.line === line) return clear();
    select(this.text.name, line, DATA.sets[this.text.sets[line] ?? 0], this.text.lines[line].trim());
  }
  // The next lit line (step 1) or the one before (−1), seen from the middle of the view.
  step(step, hits = this.hits ?? []) {
    if (!hits.length) return;
    const at = hits.indexOf(this.at), next = at < 0 ? (step > 0 ? 0 : hits.length - 1) : (at + step + hits.length) % hits.length;
    this.at = hits[next];
    this.rows.reveal(this.at);
  }
}

function levelOptions() {
  const option = (name, title) => element("option", {value: name}, title);
  return [
    DATA.sources.length && element("optgroup", {label: "model"}, ...DATA.sources.map(s => option(s.name, s.title))),
    element("optgroup", {label: "stages"}, ...DATA.stages.map(s => option(s.name, `${String(s.index).padStart(2, "0")} ${s.name}`))),
  ].filter(Boolean);
}

function activate(number) {
  active = Math.max(0, Math.min(panes.length - 1, number));
  panes.forEach((pane, i) => pane.node.classList.toggle("active", i === active));
  markOpen();
}

function placePanes() {
  $("#panes").replaceChildren(...panes.map(pane => pane.node));
  panes.forEach(pane => pane.text && pane.light(false));
}

function addPane(after) {
  const at = names().indexOf(panes[after].name);
  panes.splice(after + 1, 0, new Pane(names()[Math.min(at + 1, names().length - 1)]));
  placePanes();
  activate(after + 1);
}

function closePane(number) {
  if (panes.length === 1) return;
  panes.splice(number, 1);
  placePanes();
  activate(number - 1);
  remember();
}

const names = () => [...DATA.sources.map(s => s.name), ...DATA.stages.filter(s => s.readable).map(s => s.name)];

// Show a level: where it is open already, else in the active pane.
function show(name, line = -1) {
  const open = panes.findIndex(pane => pane.name === name);
  if (view !== "levels") showView("levels");
  activate(open >= 0 ? open : active);
  return panes[active].open(name, line);
}

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
  const stages = DATA.stages.filter(stage => DATA.diffs.some(diff => diff.b === stage.name));
  $("#pair").replaceChildren(...stages.map(stage => {
    const {a, b} = DATA.diffs.find(diff => diff.b === stage.name);
    return element("option", {value: b}, `${a} → ${b}`);
  }));
  $("#pair").onchange = () => showStage($("#pair").value);
  change = new Rows($("#change"));
  if (stages.length) showStage(stages[0].name);
  else $("#change").replaceChildren(element("p", {class: "empty"}, "This dump has no two neighbouring stages of one language."));
}

function showStage(name) {
  $("#pair").value = name;
  const stage = DATA.stages.find(s => s.name === name), list = $("#steps");
  const open = (diff, button) => { $$("button", list).forEach(b => b.classList.toggle("open", b === button)); showDiff(diff); };
  const all = element("button", {onclick: () => open(DATA.diffs.find(d => d.b === name), all)},
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
  open(DATA.diffs.find(d => d.b === name), all);
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

// The address says what is shown: #v=levels&p=linalg,ptx&l=linalg:23
function remember() {
  if (!ready) return;
  const parts = new URLSearchParams({v: view, p: panes.map(pane => pane.name).join(",")});
  if (selection.line >= 0) parts.set("l", `${selection.name}:${selection.line + 1}`);
  history.replaceState(null, "", "#" + parts);
}

async function restore() {
  ready = false;
  const parts = new URLSearchParams(location.hash.slice(1)), known = new Set(names());
  const wanted = (parts.get("p") ?? "").split(",").filter(name => known.has(name));
  panes.splice(0, panes.length, ...(wanted.length ? wanted : firstPanes()).map(name => new Pane(name)));
  placePanes();
  activate(0);
  showView($(`#views [data-view="${CSS.escape(parts.get("v") ?? "")}"]`) ? parts.get("v") : "levels");
  await Promise.all(panes.map(pane => pane.opened));
  const [, name, number] = /^(.*):(\d+)$/.exec(parts.get("l") ?? "") ?? [];
  if (known.has(name)) {
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
