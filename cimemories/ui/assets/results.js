// Rows with bars and intervals: a real table, so that a browser finds, reads out and copies what is in it. Text only
// ever becomes textContent. What is pressed goes to the page as {act, id}.

const percent = (share) => `${Math.min(100, Math.max(0, 100 * share)).toFixed(2)}%`;

class Results {
  constructor(root) {
    this.root = root;
    this.sorted = null; // [column, 1 or -1]; null for the page's own order
    this.closed = new Map(); // group id -> whether it is folded away
    root.addEventListener("keydown", (event) => this.move(event));
  }

  receive({ data, setTriggerValue }) {
    this.press = (act, id) => setTriggerValue("pressed", { act, id });
    const drawn = JSON.stringify(data);
    if (drawn === this.drawn) return; // the page runs every second: whoever selects text keeps the selection
    this.drawn = drawn;
    this.data = data;
    this.draw();
  }

  draw() {
    const focused = this.root.getRootNode().activeElement?.dataset?.focus;
    const { columns, groups, label } = this.data;
    // What is sorted is one list: groups have an order of their own.
    const shown = this.sorted ? [{ rows: groups.flatMap((group) => group.rows ?? []) }] : groups;
    const table = make("table", "", this.head(columns), ...shown.map((group) => this.body(group, columns)));
    table.setAttribute("aria-label", label);
    this.root.replaceChildren(table);
    if (focused) this.root.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
  }

  head(columns) {
    return make("thead", "", make("tr", "", ...columns.map(({ title, hint, number }, at) => {
      if (!title) return make("td", "");
      const cell = make("th", number ? "number" : "");
      cell.scope = "col";
      const [column, way] = this.sorted ?? [];
      const button = make("button", "plain", title, make("span", "arrow", column !== at ? "" : way > 0 ? " ↑" : " ↓"));
      button.dataset.focus = `head.${at}`;
      button.title = hint || "Sort";
      button.onclick = () => {
        this.sorted = column !== at ? [at, -1] : way < 0 ? [at, 1] : null;
        this.draw();
      };
      if (column === at) cell.ariaSort = way > 0 ? "ascending" : "descending";
      cell.append(button);
      return cell;
    })));
  }

  body(group, columns) {
    const body = make("tbody", group.title ? "group" : "");
    const folded = group.title && (this.closed.get(group.id) ?? !group.open);
    if (group.title) body.append(this.groupHead(group, columns, folded));
    if (!folded) body.append(...this.inOrder(group.rows ?? []).map((row) => this.row(row, columns)));
    return body;
  }

  groupHead(group, columns, folded) {
    const cell = make("th", "");
    cell.colSpan = columns.length;
    cell.scope = "rowgroup";
    const fold = make("button", "plain fold", folded ? "▸ " : "▾ ", make("b", "", group.title));
    fold.ariaExpanded = String(!folded);
    fold.dataset.focus = `fold.${group.id}`;
    fold.onclick = () => { this.closed.set(group.id, !folded); this.draw(); };
    cell.append(fold, make("span", "muted", ` ${group.note ?? ""} `));
    for (const [text, act] of group.buttons ?? []) cell.append(" ", this.button(text, act, group.id, group.title));
    return make("tr", "", cell);
  }

  inOrder(rows) {
    if (!this.sorted) return rows;
    const [at, way] = this.sorted;
    const of = ({ cells }) => cells[at].value ?? cells[at].text ?? "";
    // Missing values stand last, whichever way.
    return [...rows].sort((one, other) => {
      const [a, b] = [of(one), of(other)];
      if (a === "" || b === "") return (a === "") - (b === "");
      return way * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
    });
  }

  row({ id, cells, grey, chosen }, columns) {
    const row = make("tr", [grey && "grey", chosen && "chosen"].filter(Boolean).join(" "));
    if (chosen) row.ariaCurrent = "true";
    row.append(...cells.map((cell, at) => {
      const box = make(at ? "td" : "th", columns[at].number ? "number" : "");
      if (!at) box.scope = "row";
      else box.dataset.title = columns[at].title;
      if (cell.hint) box.title = cell.hint;
      if (cell.opens) box.append(this.button(cell.text, "open", id, "", "plain name"));
      else if (cell.text) box.append(make("span", "text", cell.text));
      for (const [text, kind] of cell.chips ?? []) box.append(" ", make("span", `chip ${kind}`, text));
      if (cell.bar !== undefined) box.append(this.bar(cell.bar));
      if (cell.low !== undefined) box.append(this.range(cell));
      if (cell.small) box.append(make("div", "muted", cell.small));
      for (const [text, act] of cell.buttons ?? []) box.append(" ", this.button(text, act, id, cells[0].text));
      return box;
    }));
    // A click anywhere in the row opens it; the name is the button that the keyboard and screen readers use.
    if (cells[0].opens) row.onclick = (event) => {
      if (!event.target.closest("button") && !getSelection().toString()) this.press("open", id);
    };
    return row;
  }

  button(text, act, id, of, cls = "") {
    const button = make("button", cls, text);
    button.dataset.focus = `${act}.${id}`;
    if (of) button.ariaLabel = `${text}: ${of}`;
    button.onclick = () => this.press(act, id);
    return button;
  }

  bar(share) {
    const fill = make("span", "fill");
    fill.style.width = percent(share);
    return make("span", "bar", fill);
  }

  range({ value, low, high }) {
    const whisker = make("span", "whisker");
    whisker.style.left = percent(low);
    whisker.style.width = percent(high - low);
    const point = make("span", "point");
    point.style.left = percent(value);
    return make("span", "range", whisker, point);
  }

  // Up and down go from name to name.
  move(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const names = [...this.root.querySelectorAll("button.name")];
    const at = names.indexOf(event.target);
    if (!step || at < 0 || !names[at + step]) return;
    event.preventDefault();
    names[at + step].focus();
  }
}

export default mounted(Results, ".results");
