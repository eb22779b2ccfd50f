// The cursor in the matrix: keys, pointer, and what the server and screen readers are told. It lives here, so that no
// key press is lost while the server is busy; the server is told where the cursor came to rest, and what was decided
// (deciding.js). Text of the data is set as textContent, never as markup.

class Matrix extends Drawing {
  constructor(root, parent) {
    super(parent, root);
    this.tip = root.querySelector(".tip");
    this.moves = [["← ↑ → ↓", "move; Home, End, Page up and Page down, too"], ["+ −", "larger or smaller cells"]];
    this.deciding = new Deciding(this);
    this.listen();
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
    this.deciding.close();
    cancelAnimationFrame(this.frameAsked);
  }

  // New data, or a new theme. A cursor that the server names counts unless this one has moved on since.
  receive({ data, setTriggerValue }) {
    const arrived = performance.now();
    const first = !this.data;
    const here = first ? null : this.pair();
    this.data = data;
    this.deciding.receive(data, setTriggerValue);
    const rows = new Map(data.rows.map((row, i) => [row.id, i]));
    const columns = new Map(data.columns.map((column, j) => [column.id, j]));
    const wanted = this.place.receive(data, setTriggerValue, first) ? data.cursor : here;
    const before = here && here.join();
    this.cursor = [rows.get(wanted?.[0]) ?? 0, columns.get(wanted?.[1]) ?? 0];
    this.scroller.setAttribute("aria-label", data.title);
    this.scroller.setAttribute("aria-rowcount", data.rows.length);
    this.scroller.setAttribute("aria-colcount", data.columns.length);
    this.dress();
    this.measure();
    if (first || before !== this.pair().join()) this.reveal();
    this.draw();
    this.say();
    performance.measure("matrix drawn", { start: arrived });
  }

  pair() {
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
    this.tip.replaceChildren(...lines.map(([words, name]) => (name === "said" ? own : make)("div", name, words)));
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
      const kept = column.retained ? "Retained" : column.discarded
        ? "Discarded (∅): no necessary or no inappropriate attribute" : "Not labelled yet";
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
    else if (event.key === "Enter" || event.key === " ") this.place.tell();
    else if (this.deciding.key(event)) { /* decided */ }
    else if (event.key === "+" || event.key === "=") this.rescale(1);
    else if (event.key === "-") this.rescale(-1);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  card() {
    const pair = this.pair();
    return pair.includes(undefined) ? "" : pair.join(".");
  }

  mark(card, glyph) {
    const [attribute, context] = card.split(".").map(Number);
    const i = this.data.rows.findIndex((row) => row.id === attribute);
    const j = this.data.columns.findIndex((column) => column.id === context);
    if (i < 0 || j < 0) return;
    const n = i * this.data.columns.length + j;
    const put = (text, character) => text.slice(0, n) + character + text.slice(n + 1);
    this.data.cells = put(this.data.cells, glyph);
    this.data.decided = put(this.data.decided, "1");
  }

  shown() {
    this.draw();
    this.say();
  }

  // The next cell that the filters ask for, row by row, round the end; with 0 the cursor stays.
  step(by) {
    if (!by) return this.move(...this.cursor, REST_MS);
    const { matched, columns } = this.data;
    const here = this.cursor[0] * columns.length + this.cursor[1];
    for (let k = 1; k <= matched.length; k++) {
      const n = (here + by * k + matched.length * 2) % matched.length;
      if (matched[n] === "1") return this.move(Math.floor(n / columns.length), n % columns.length, REST_MS);
    }
    return undefined;
  }

  move(row, column, wait) {
    if (!this.data.rows.length || !this.data.columns.length) return;
    this.cursor = [clamp(row, 0, this.data.rows.length - 1), clamp(column, 0, this.data.columns.length - 1)];
    this.tip.hidden = true;
    this.reveal();
    this.redraw();
    this.say();
    this.place.move(wait);
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

export default mounted(Matrix, ".matrix");
