// The pairs of one context as a table: the row that the person is at, keys, and what is decided (deciding.js). The row
// lives here, so that no key press is lost while the server is busy; the server is told where the person came to rest.
// Text of the data is set as textContent, never as markup.

const PAGE = 10; // rows

// Marks in words, for those who do not see them: "IIU" as "2 inappropriate, 1 abstain".
const votes = (marks) => Object.entries({ N: "necessary", I: "inappropriate", U: "abstain", "-": "missing" })
  .map(([mark, word]) => [[...marks].filter((one) => one === mark).length, word])
  .filter(([number]) => number).map(([number, word]) => `${number} ${word}`).join(", ");

// By which column, across contexts and for as long as the app is open: its number, and whether downwards.
let sorting = null;

class PairList {
  constructor(root) {
    this.root = root;
    this.table = root.querySelector("table");
    this.scroller = root.querySelector(".scroller");
    this.at = 0;
    this.moves = [["↑ ↓", "move; Home, End, Page up and Page down, too"]];
    this.deciding = new Deciding(this);
    this.table.addEventListener("keydown", (event) => this.key(event));
    this.table.addEventListener("click", (event) => {
      const row = event.target.closest("tbody tr");
      if (row) this.go([...row.parentElement.children].indexOf(row), 0);
    });
  }

  close() { this.deciding.close(); }

  // A row that the server names counts unless this one has moved on since.
  receive({ data, setTriggerValue }) {
    const here = this.data?.rows[this.at]?.id;
    const first = !this.data || this.data.context !== data.context;
    this.data = data;
    this.given = [...data.rows];
    this.arrange();
    const wanted = this.place.receive(data, setTriggerValue, first) ? data.cursor : here;
    this.at = Math.max(0, data.rows.findIndex((row) => row.id === wanted));
    this.deciding.receive(data, setTriggerValue);
    this.draw();
    if (first || wanted !== here) this.reveal();
  }

  draw() {
    const { title, columns, rows } = this.data;
    this.table.setAttribute("aria-label", title);
    const heads = make("tr", "", ...columns.map(({ name, kind }, c) => {
      const head = make("th", kind);
      const button = make("button", "sort", name);
      button.type = "button";
      button.title = `Sort by ${name.toLowerCase()}`;
      button.addEventListener("click", () => this.sort(c));
      head.append(button);
      if (sorting?.column === c) head.setAttribute("aria-sort", sorting.down ? "descending" : "ascending");
      return head;
    }));
    this.table.tHead.replaceChildren(heads);
    this.table.tBodies[0].replaceChildren(...rows.map((row, i) => {
      const line = make("tr");
      line.id = `pair-${row.id}`;
      line.append(...columns.map(({ kind }, c) => {
        const cell = own("td", kind);
        cell.setAttribute("role", "gridcell");
        if (c === this.data.label) cell.append(...this.label(row));
        else cell.append(isolated(row.cells[c]));
        // Imported shares say what they are.
        if (kind.startsWith("marks") && /^[NIU-]+$/.test(row.cells[c])) cell.setAttribute("aria-label", votes(row.cells[c]));
        return cell;
      }));
      return line;
    }));
    this.select();
  }

  // Rows that have been sorted stay where they are while they are decided: only other pairs are sorted anew.
  arrange() {
    const at = new Map(this.order?.map((id, i) => [id, i]));
    const same = at.size === this.data.rows.length && this.data.rows.every(({ id }) => at.has(id));
    if (same) this.data.rows.sort((a, b) => at.get(a.id) - at.get(b.id));
    else if (sorting) this.sorted();
    this.order = this.data.rows.map(({ id }) => id);
  }

  sorted() {
    const { column, down } = sorting;
    const text = (row) => (column === this.data.label ? row.word : row.cells[column]);
    const sign = down ? -1 : 1;
    this.data.rows.sort((a, b) => sign * text(a).localeCompare(text(b), undefined, { numeric: true }));
  }

  // A click sorts upwards, a second one downwards, a third one gives the order of the profile back.
  sort(column) {
    const here = this.data.rows[this.at]?.id;
    const again = sorting?.column === column;
    sorting = again && sorting.down ? null : { column, down: again };
    this.data.rows = [...this.given];
    if (sorting) this.sorted();
    this.order = this.data.rows.map(({ id }) => id);
    this.at = Math.max(0, this.data.rows.findIndex((row) => row.id === here));
    const focused = this.root.getRootNode().activeElement?.classList.contains("sort");
    this.draw();
    this.reveal();
    if (focused) this.table.tHead.querySelectorAll(".sort")[column].focus();
  }

  label({ glyph, word, by }) {
    const label = make("span", "label");
    if (glyph) label.append(make("b", glyph, glyph));
    label.append(word);
    return by ? [label, make("span", "by", by)] : [label];
  }

  select() {
    [...this.table.tBodies[0].children].forEach((line, i) => line.setAttribute("aria-selected", String(i === this.at)));
    const here = this.data.rows[this.at];
    if (here) this.table.setAttribute("aria-activedescendant", `pair-${here.id}`);
  }

  // Scroll the table, and not the page, so far that the row is in sight.
  reveal() {
    const line = this.table.tBodies[0].children[this.at];
    if (!line) return;
    const [top, end] = [line.offsetTop - this.table.tHead.offsetHeight, line.offsetTop + line.offsetHeight];
    const { scrollTop, clientHeight } = this.scroller;
    this.scroller.scrollTop = Math.max(end - clientHeight, Math.min(scrollTop, top));
  }

  key(event) {
    const last = this.data.rows.length - 1;
    const targets = {
      ArrowUp: this.at - 1, ArrowDown: this.at + 1, Home: 0, End: last, PageUp: this.at - PAGE, PageDown: this.at + PAGE,
    };
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key in targets) this.go(targets[event.key], REST_MS);
    else if (!this.deciding.key(event)) return;
    event.preventDefault();
    event.stopPropagation();
  }

  step(by) { this.go(this.at + by, REST_MS); }

  go(at, wait) {
    this.at = Math.max(0, Math.min(this.data.rows.length - 1, at));
    this.select();
    this.reveal();
    this.place.move(wait);
  }

  // ---- for the keys that decide

  card() {
    const here = this.data.rows[this.at];
    return here ? `${here.id}.${this.data.context}` : "";
  }

  mark(card, glyph) {
    const row = this.data.rows.find(({ id }) => `${id}.${this.data.context}` === card);
    const key = this.data.keys.find((item) => item.glyph === glyph);
    if (row) Object.assign(row, { glyph, word: key.label, by: "decided by you" });
  }

  shown() { this.draw(); }
}

export default mounted(PairList, ".pair-list");
