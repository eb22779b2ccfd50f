// Links the maps of one chart: the cell under the pointer and the chosen one are framed in every map at once, and a
// click tells the server which cell it was. The chart itself need not be drawn again for that, which would take longer
// than all the rest. Cells are numbers; no text of the data comes here.

const LOOK_MS = 200;

class Link {
  constructor(root) {
    // Beside the chart, which is a picture to screen readers.
    this.keys = make("div");
    this.keys.tabIndex = 0;
    this.keys.setAttribute("role", "application");
    this.keys.setAttribute("aria-label", "Cells of the heatmap: arrow keys move, Enter opens one");
    this.keys.style.cssText = "font-size: .8667rem; line-height: 1.4; min-height: 4px";
    this.words = make("div");
    this.words.setAttribute("role", "status");
    this.keys.append(this.words);
    this.keys.addEventListener("focus", () => this.hover(this.hovered ?? this.selected ?? [0, 0], "xaxis"));
    this.keys.addEventListener("blur", () => this.hover(null));
    this.keys.addEventListener("keydown", (event) => this.key(event));
    root.append(this.keys);
    this.plot = null;
    this.events = null;
    this.selected = null;
    this.hovered = null;
    this.over = null; // the axis of the map that the pointer is on
    this.at = { left: 0, right: 0, top: 0, bottom: 0 }; // the cell under the pointer there
    this.timer = setInterval(() => this.find(), LOOK_MS);
  }

  receive(component) {
    this.data = component.data;
    this.send = component.setTriggerValue;
    this.selected = this.data.selected;
    this.hovered = null;
    this.find();
    this.draw();
  }

  // The page may take the chart away and bring another at any time, and Plotly may begin anew in the same place.
  find() {
    if (!this.data) return;
    const plot = document.querySelector(`.st-key-${this.data.box} .js-plotly-plot`);
    if (!plot || !plot.on || (plot === this.plot && plot._ev === this.events && this.layer.isConnected)) return;
    this.layer?.remove();
    this.plot = plot;
    if (plot._ev !== this.events) {
      this.events = plot._ev;
      plot.on("plotly_hover", (event) => this.hover(this.cell(event), event?.points?.[0]?.xaxis?._name));
      plot.on("plotly_unhover", () => this.hover(null));
      plot.on("plotly_click", (event) => this.click(this.cell(event)));
      plot.on("plotly_afterplot", () => this.draw());
    }
    this.layer = make("div");
    this.layer.setAttribute("aria-hidden", "true");
    this.layer.style.cssText = "position:absolute;inset:0;pointer-events:none;overflow:hidden";
    plot.style.position = "relative";
    plot.append(this.layer);
    plot.dataset.linked = "yes";
    this.draw();
  }

  cell(event) {
    const point = event?.points?.[0];
    return point ? [Math.round(point.y), Math.round(point.x)] : null;
  }

  hover(cell, axis) {
    this.hovered = cell;
    this.over = axis;
    this.draw();
    const focused = cell && this.keys.matches(":focus");
    this.words.textContent = focused ? `${this.lines().join(" · ")}. Arrow keys move, Enter opens the cell.` : "";
  }

  key(event) {
    const { rows, columns } = this.data.tooltips ?? { rows: [], columns: [] };
    const [row, column] = this.hovered ?? this.selected ?? [0, 0];
    const [first, last] = this.plot?._fullLayout?.yaxis.range ?? [0, 1];
    const down = first > last ? 1 : -1;
    const steps = { ArrowDown: [down, 0], ArrowUp: [-down, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] };
    const [by, to] = steps[event.key] ?? [0, 0];
    const held = (at, number) => Math.max(0, Math.min(at, number - 1));
    if (by || to) this.hover([held(row + by, rows.length), held(column + to, columns.length)], "xaxis");
    else if (event.key === "Enter" || event.key === " ") this.click([row, column]);
    else return;
    event.preventDefault();
  }

  click(cell) {
    if (!cell) return;
    this.selected = cell;
    this.draw();
    this.send("cell", cell);
  }

  draw() {
    this.frames();
    this.tell();
  }

  // What stands in the cell under the pointer, beside it and inside the chart.
  tell() {
    const lines = this.lines();
    if (!this.layer || !lines.length) return;
    const box = make("div", "ci-cell-tooltip", ...lines.map((text, at) => make(at ? "div" : "b", "", text)));
    const ink = getComputedStyle(document.body).color;
    const paper = getComputedStyle(document.querySelector(".stApp") ?? document.body).backgroundColor;
    box.style.cssText =
      "position:absolute;max-width:340px;padding:6px 10px;border-radius:4px;font-size:13px;line-height:1.45;" +
      `background:${ink};color:${paper};z-index:1`;
    this.layer.append(box);
    const own = box.getBoundingClientRect();
    const all = this.layer.getBoundingClientRect();
    const { left, right, top, bottom } = this.at;
    const beside = right + 8 + own.width < all.width ? right + 8 : left - 8 - own.width;
    const middle = (top + bottom - own.height) / 2;
    box.style.left = `${Math.max(0, beside)}px`;
    box.style.top = `${Math.max(0, Math.min(middle, all.height - own.height))}px`;
  }

  lines() {
    if (!this.hovered || !this.data.tooltips) return [];
    const { rows, columns, maps } = this.data.tooltips;
    const [row, column] = this.hovered;
    if (rows[row] === undefined || columns[column] === undefined) return [];
    return [rows[row], columns[column], ...maps.map(({ name, cells }) => `${name}: ${cells[row]?.[column]}`)];
  }

  frames() {
    const layout = this.plot?._fullLayout;
    if (!layout || !this.layer) return;
    this.layer.replaceChildren();
    for (const name of Object.keys(layout).filter((item) => /^xaxis\d*$/.test(item))) {
      const axes = [layout[name], layout.yaxis];
      if (this.hovered) this.frame(axes, this.hovered, 1);
      if (this.selected) this.frame(axes, this.selected, 2);
    }
  }

  // White inside black: it stands out from every colour of the scales in both themes.
  frame([across, down], [row, column], thick) {
    const ends = (axis, at) => [axis.d2p(at - 0.5), axis.d2p(at + 0.5)].sort((a, b) => a - b);
    const [left, right] = ends(across, column);
    const [top, bottom] = ends(down, row);
    if (left < -1 || right > across._length + 1 || top < -1 || bottom > down._length + 1) return;
    if (thick === 1 && across._name === this.over) {
      this.at = {
        left: across._offset + left,
        right: across._offset + right,
        top: down._offset + top,
        bottom: down._offset + bottom,
      };
    }
    const box = make("div");
    box.style.cssText =
      `position:absolute;box-sizing:border-box;left:${across._offset + left}px;top:${down._offset + top}px;` +
      `width:${right - left}px;height:${bottom - top}px;border:${thick}px solid #fff;outline:${thick}px solid #000`;
    this.layer.append(box);
  }

  close() {
    clearInterval(this.timer);
    this.keys.remove();
    this.layer?.remove();
  }
}

export default mounted(Link);
