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
