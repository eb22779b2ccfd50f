// The cursor in the matrix: keys, pointer, and what the server and screen readers are told. It lives here, so that no
// key press is lost while the server is busy; the server is told where the cursor came to rest, and what was decided: all
// of the log that it has not confirmed, by uid. Text of the data is set as textContent, never as markup.

const REST_MS = 120;
const RETRY_MS = 4000;
const LOG = []; // decisions not confirmed yet; they outlive the component, which another page takes away
const UNDOABLE = []; // uids and cards of the decisions made since the app was opened

class Matrix extends Drawing {
  constructor(parent, root) {
    super(parent, root);
    this.tip = root.querySelector(".tip");
    this.moves = 0;
    arrived();
    this.listen();
    this.retry = setInterval(() => {
      if (LOG.length && !leaving() && performance.now() - this.sentAt > RETRY_MS) this.flush();
    }, 1000);
  }

  listen() {
    this.scroller.addEventListener("scroll", () => { this.tip.hidden = true; this.redraw(); }, { passive: true });
    this.scroller.addEventListener("keydown", (event) => this.key(event));
    this.scroller.addEventListener("click", (event) => this.click(event));
    this.scroller.addEventListener("pointermove", (event) => this.hover(event));
    this.scroller.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    this.scroller.addEventListener("focus", () => { this.say(); this.redraw(); });
    this.scroller.addEventListener("blur", () => this.redraw());
    this.root.querySelector(".in").addEventListener("click", () => this.rescale(1));
    this.root.querySelector(".out").addEventListener("click", () => this.rescale(-1));
    this.watch = new ResizeObserver(() => { if (this.data) { this.measure(); this.draw(); } });
    this.watch.observe(this.frame);
  }

  close() {
    this.watch.disconnect();
    clearTimeout(this.rest);
    clearInterval(this.retry);
    cancelAnimationFrame(this.frameAsked);
  }

  // New data, or a new theme. A cursor that the server names counts unless this one has moved on since.
  receive({ data, setTriggerValue, setStateValue }) {
    const arrived = performance.now();
    const first = !this.data;
    const here = first ? null : this.place();
    this.data = data;
    this.send = (value) => setTriggerValue("chosen", value);
    this.log = (value) => setStateValue("log", value);
    const handled = new Set(data.handled);
    LOG.splice(0, LOG.length, ...LOG.filter((event) => !handled.has(event.uid)));
    for (const event of LOG) this.mark(event);
    this.status();
    const rows = new Map(data.rows.map((row, i) => [row.id, i]));
    const columns = new Map(data.columns.map((column, j) => [column.id, j]));
    const wanted = first || data.moves >= this.moves ? data.cursor : here;
    this.moves = Math.max(this.moves, data.moves);
    const before = here && here.join();
    this.cursor = [rows.get(wanted?.[0]) ?? 0, columns.get(wanted?.[1]) ?? 0];
    this.scroller.setAttribute("aria-label", data.title);
    this.scroller.setAttribute("aria-rowcount", data.rows.length);
    this.scroller.setAttribute("aria-colcount", data.columns.length);
    this.dress();
    this.measure();
    if (first || before !== this.place().join()) this.reveal();
    this.draw();
    this.say();
    performance.measure("matrix drawn", { start: arrived });
  }

  place() {
    return [this.data.rows[this.cursor[0]]?.id, this.data.columns[this.cursor[1]]?.id];
  }

  // Which row and column a point of the frame belongs to; -1 where none.
  at(event) {
    const box = this.scroller.getBoundingClientRect();
    const [px, py] = [event.clientX - box.left, event.clientY - box.top];
    if (px >= this.scroller.clientWidth || py >= this.scroller.clientHeight) return [-1, -1];
    const find = (starts, point) => starts.findLastIndex((start) => start <= point && point < start + this.cell);
    const row = py < this.top ? -1 : find(this.y, py - this.top + this.scroller.scrollTop);
    const column = px < this.left ? -1 : find(this.x, px - this.left + this.scroller.scrollLeft);
    return [row, column];
  }

  click(event) {
    const [row, column] = this.at(event);
    if (row < 0 && column < 0) return;
    this.move(row < 0 ? this.cursor[0] : row, column < 0 ? this.cursor[1] : column, 0);
  }

  hover(event) {
    const [i, j] = this.at(event);
    const lines = this.words(i, j);
    this.tip.hidden = !lines.length;
    if (!lines.length) return;
    this.tip.replaceChildren(...lines.map(([words, name]) => {
      const line = document.createElement("div");
      line.className = name;
      line.textContent = words;
      return line;
    }));
    const box = this.frame.getBoundingClientRect();
    const [px, py] = [event.clientX - box.left, event.clientY - box.top];
    const [wide, high] = [this.tip.offsetWidth, this.tip.offsetHeight];
    this.tip.style.left = `${px + 16 + wide > box.width ? Math.max(4, px - wide - 12) : px + 16}px`;
    this.tip.style.top = `${py + 16 + high > box.height ? Math.max(4, py - high - 12) : py + 16}px`;
  }

  words(i, j) {
    const [row, column] = [this.data.rows[i], this.data.columns[j]];
    const counted = ([n, x, q]) => `${n} necessary, ${x} inappropriate, ${q} ambiguous`;
    const lines = [];
    if (row) lines.push([row.statement, "said"]);
    if (column) lines.push([`${column.recipient}: ${column.task}`, row ? "" : "said"]);
    if (row && column) lines.push([this.label(i, j), ""]);
    else if (row) lines.push([`${row.key}: ${counted(row.counts)}`, "muted"]);
    else if (column) {
      const kept = column.retained ? "Retained" : "Discarded (∅): no necessary or no inappropriate attribute";
      lines.push([`${counted(column.counts)}. ${kept}.`, "muted"]);
    }
    return lines;
  }

  label(i, j) {
    const { cells, decided, consensus, columns } = this.data;
    const n = i * columns.length + j;
    const word = `${cells[n] === "-" ? "" : `${cells[n]} `}${WORDS[cells[n]]}`;
    return decided[n] === "1" ? `${word}, decided by a person (consensus: ${WORDS[consensus[n]]})` : word;
  }

  key(event) {
    const [i, j] = this.cursor;
    const [rows, columns] = [this.data.rows.length, this.data.columns.length];
    const page = Math.max(1, Math.floor((this.scroller.clientHeight - this.top - BLOCK) / this.cell) - 1);
    const far = event.ctrlKey || event.metaKey;
    const targets = {
      ArrowUp: [i - 1, j], ArrowDown: [i + 1, j], ArrowLeft: [i, j - 1], ArrowRight: [i, j + 1],
      Home: [far ? 0 : i, 0], End: [far ? rows - 1 : i, columns - 1], PageUp: [i - page, j], PageDown: [i + page, j],
    };
    if (event.altKey || (far && !["Home", "End"].includes(event.key))) return;
    if (event.key in targets) this.move(...targets[event.key], REST_MS);
    else if (event.key === "Enter" || event.key === " ") this.tell();
    else if (event.key === "j" || event.key === "k") this.seek(event.key === "j" ? 1 : -1);
    else if (!far && this.decide(event)) { /* decided */ }
    else if (event.key === "+" || event.key === "=") this.rescale(1);
    else if (event.key === "-") this.rescale(-1);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  // ---- decisions

  // A key that decides the pair under the cursor, or takes the last decision back: drawn at once, then sent.
  decide(event) {
    const pressed = event.key.toLowerCase();
    const key = this.data.keys.find((item) => item.key === pressed);
    if (event.repeat || (!key && !(pressed === "z" && this.data.keys.length))) return false;
    const place = this.place();
    const last = key ? null : UNDOABLE.pop();
    if (!this.data.owner) this.status("Enter your name beside the matrix, then decide.");
    else if (place.includes(undefined) || (!key && !last)) this.status("There is nothing to take back here.");
    else {
      const decision = {
        uid: crypto.randomUUID(), kind: key ? "say" : "undo", card: last?.card ?? place.join("."), says: key?.says ?? null,
        seconds: 0, blind: false, text: "", of: last?.uid ?? null, owner: this.data.owner, glyph: key?.glyph,
      };
      if (key) UNDOABLE.push(decision);
      LOG.push(decision);
      this.mark(decision);
      this.draw();
      this.say();
      this.status();
      this.flush();
    }
    return true;
  }

  // What is decided and not confirmed is drawn as if it were; what is taken back shows once the server says what counts.
  mark({ kind, card, glyph, owner }) {
    const [attribute, context] = card.split(".").map(Number);
    const [i, j] = [this.data.rows, this.data.columns].map((items, k) => items.findIndex((x) => x.id === [attribute, context][k]));
    if (kind !== "say" || owner !== this.data.owner || i < 0 || j < 0) return;
    const n = i * this.data.columns.length + j;
    const put = (text, character) => text.slice(0, n) + character + text.slice(n + 1);
    this.data.cells = put(this.data.cells, glyph);
    this.data.decided = put(this.data.decided, "1");
  }

  flush() {
    this.sentAt = performance.now();
    this.log({ events: LOG.map(({ glyph, ...event }) => event) });
  }

  status(words = LOG.length ? `saving ${LOG.length} …` : UNDOABLE.length ? "all decisions saved" : "") {
    this.root.querySelector(".state").textContent = words;
    const hint = this.root.querySelector(".deciding");
    const keys = this.data.keys.map(({ key, label }) => [key, label]);
    if (keys.length) keys.push(["z", "take back"]);
    hint.replaceChildren(...keys.flatMap(([key, label]) => {
      const shown = document.createElement("kbd");
      shown.textContent = key;
      return [shown, label];
    }));
  }

  // The next cell that the filters ask for, row by row, round the end.
  seek(step) {
    const { matched, columns } = this.data;
    const here = this.cursor[0] * columns.length + this.cursor[1];
    for (let k = 1; k <= matched.length; k++) {
      const n = (here + step * k + matched.length * 2) % matched.length;
      if (matched[n] === "1") return this.move(Math.floor(n / columns.length), n % columns.length, REST_MS);
    }
    return undefined;
  }

  move(row, column, wait) {
    if (!this.data.rows.length || !this.data.columns.length) return;
    this.cursor = [clamp(row, 0, this.data.rows.length - 1), clamp(column, 0, this.data.columns.length - 1)];
    this.moves += 1;
    this.tip.hidden = true;
    this.reveal();
    this.redraw();
    this.say();
    clearTimeout(this.rest);
    if (wait) this.rest = setTimeout(() => { if (!leaving()) this.tell(); }, wait);
    else this.tell();
  }

  tell() {
    clearTimeout(this.rest);
    const [attribute, context] = this.place();
    if (attribute !== undefined && context !== undefined) this.send({ attribute, context, moves: this.moves });
  }

  // Scroll so far that the chosen cell is in sight, clear of the headings.
  reveal() {
    const [i, j] = this.cursor;
    if (!this.data.rows.length || !this.data.columns.length) return;
    const [x, y] = [this.x[j], this.y[i]];
    const { clientWidth, clientHeight } = this.scroller;
    const [wide, high] = [clientWidth - this.left, clientHeight - this.top];
    this.scroller.scrollLeft = clamp(this.scroller.scrollLeft, x + this.cell + 6 - wide, x - 2);
    this.scroller.scrollTop = clamp(this.scroller.scrollTop, y + this.cell + 6 - high, y - BLOCK - 2);
  }

  // For screen readers: two cells take turns, so that each move makes another one active and is read out.
  say() {
    const [i, j] = this.cursor;
    const row = this.data.rows[i];
    const column = this.data.columns[j];
    if (!row || !column) return;
    this.turn = this.turn ? 0 : 1;
    const cell = this.root.querySelector(`#cell-${this.turn}`);
    cell.textContent = `${this.label(i, j)}: ${row.key} to ${column.recipient}. ${row.statement}`;
    cell.setAttribute("aria-colindex", j + 1);
    cell.parentElement.setAttribute("aria-rowindex", i + 1);
    this.scroller.setAttribute("aria-activedescendant", cell.id);
  }

  rescale(step) {
    const zoom = clamp(this.zoom + step, 0, ZOOMS.length - 1);
    if (zoom === this.zoom) return;
    this.zoom = zoom;
    this.root.querySelector(".in").disabled = zoom === ZOOMS.length - 1;
    this.root.querySelector(".out").disabled = zoom === 0;
    this.measure();
    this.reveal();
    this.draw();
  }
}

const shown = new WeakMap();

export default function (component) {
  const parent = component.parentElement;
  const root = parent.querySelector(".matrix");
  let matrix = shown.get(parent);
  if (!matrix || matrix.root !== root) {
    matrix?.close();
    matrix = new Matrix(parent, root);
    shown.set(parent, matrix);
  }
  matrix.receive(component);
  return () => matrix.close();
}
