// How the matrix is drawn: one canvas of the size of its frame, anew at each scroll, sharp at any density. matrix.js,
// which stands behind this file in one module, adds the cursor. All words of the data go through fillText alone.

const ZOOMS = [14, 18, 24, 32];
const NAMES = 132;
const COUNT_LINE = 13;
const HEADS_LINE = 18;
const BAND = 20;
const BLOCK = 22;
const SPHERE_GAP = 7;
const COUNT = 25;
const WORDS = { N: "necessary", I: "inappropriate", U: "ambiguous", "~": "too few votes", "-": "not labelled" };
const PALETTES = {
  light: {
    N: ["#3DB890", "#04251A"], I: ["#F2A981", "#4A1B00"], U: ["#F8E9C4", "#6E5100"], "-": ["#F3F5F6", "#9AA4AC"],
    decided: { N: ["#00543C", "#FFFFFF"], I: ["#8A2F00", "#FFFFFF"], U: ["#6E5100", "#FFFFFF"] },
    "~": ["#ECE4F2", "#55407A"],
    faint: "#5B6770", line: "#D3D9DE", ring: "#0B1116", band: "#F2F4F6", tint: "#DCEBF5",
  },
  dark: {
    decided: { N: ["#6BF0C6", "#00271B"], I: ["#FFA36B", "#3A1400"], U: ["#FFDD85", "#352700"] },
    N: ["#128F6B", "#E9FFF7"], I: ["#A9541F", "#FFEBDD"], U: ["#43381D", "#E5C677"], "-": ["#1D2328", "#68747D"],
    "~": ["#2B2437", "#B9A6D9"],
    faint: "#9AA6AF", line: "#38424A", ring: "#FFFFFF", band: "#20262B", tint: "#1D3A4E",
  },
};
const GLYPHS = ["N", "I", "U", "~", "-"];

// 0 for black, 1 for white; of '#15191D', '#fff' or 'rgb(21, 25, 29)'.
function luminance(colour) {
  const short = colour.match(/^#(.)(.)(.)$/);
  const parts = short ? short.slice(1).map((digit) => `0x${digit}${digit}`)
    : colour.startsWith("#") ? colour.match(/[0-9a-f]{2}/gi).map((pair) => `0x${pair}`) : colour.match(/[\d.]+/g);
  const [r, g, b] = (parts ?? [255, 255, 255]).map(Number);
  return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255;
}

function clamp(value, low, high) {
  return Math.max(low, Math.min(high, value));
}

class Drawing {
  constructor(parent, root) {
    this.root = root;
    this.host = parent.host ?? parent;
    this.frame = root.querySelector(".frame");
    this.canvas = root.querySelector(".frame > canvas");
    this.scroller = root.querySelector(".scroller");
    this.size = root.querySelector(".size");
    this.context = this.canvas.getContext("2d");
    this.zoom = 1;
    this.cursor = [0, 0];
    this.fits = new Map();
  }

  // Colours and fonts of the theme.
  dress() {
    const style = getComputedStyle(this.host);
    const value = (name, other) => style.getPropertyValue(name).trim() || other;
    this.ground = value("--st-background-color", "#ffffff");
    this.ink = value("--st-text-color", "#1c2329");
    this.accent = value("--st-primary-color", "#0072b2");
    this.font = value("--st-font", "sans-serif");
    this.colours = PALETTES[luminance(this.ground) < 0.4 ? "dark" : "light"];
    this.fits.clear();
    this.legend();
  }

  // Where everything stands, in CSS pixels that fall on whole device pixels.
  measure() {
    const { rows, columns, blocks, spheres, above } = this.data;
    this.frame.style.height = `max(420px, calc(100vh - ${above}px))`;
    this.ratio = window.devicePixelRatio || 1;
    const snap = (length) => Math.round(length * this.ratio) / this.ratio;
    this.cell = snap(ZOOMS[this.zoom]);
    this.band = spheres.length > 1 || spheres[0]?.name ? BAND : 0;
    this.left = snap(clamp(this.frame.clientWidth * 0.33, 190, 320));
    this.top = snap(this.band + NAMES + 3 * COUNT_LINE + HEADS_LINE);
    this.x = new Float64Array(columns.length);
    this.y = new Float64Array(rows.length);
    let at = 0;
    spheres.forEach((group, g) => {
      at += g ? SPHERE_GAP : 0;
      for (let j = group.start; j < group.end; j++, at += this.cell) this.x[j] = at;
    });
    this.width = at;
    at = 0;
    for (const block of blocks) {
      block.y = at;
      at += BLOCK;
      for (let i = block.start; i < block.end; i++, at += this.cell) this.y[i] = at;
    }
    this.height = at + 2;
    this.size.style.width = `${this.left + this.width + 2}px`;
    this.size.style.height = `${this.top + this.height}px`;
    const [wide, high] = [this.scroller.clientWidth, this.scroller.clientHeight];
    this.canvas.width = Math.round(wide * this.ratio);
    this.canvas.height = Math.round(high * this.ratio);
    this.canvas.style.width = `${wide}px`;
    this.canvas.style.height = `${high}px`;
    this.stamps();
  }

  // One small picture a glyph, drawn once and copied into thousands of cells.
  stamps() {
    this.stamp = {};
    for (const glyph of GLYPHS) {
      for (const matched of [1, 0]) {
        for (const decided of [1, 0]) this.stamp[glyph + matched + decided] = this.stampOf(glyph, matched, this.cell, decided);
      }
    }
  }

  // A person's decision is the reverse of a consensus, light on dark (dark on light in the dark theme), with a corner.
  stampOf(glyph, matched, cell, decided = 0) {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = Math.round(cell * this.ratio);
    const c = canvas.getContext("2d");
    c.scale(this.ratio, this.ratio);
    const [fill, ink] = (decided && this.colours.decided[glyph]) || this.colours[glyph];
    const side = cell - 1;
    c.globalAlpha = matched ? 1 : 0.16;
    c.fillStyle = fill;
    c.fillRect(0, 0, side, side);
    if (glyph === "-") {
      c.save();
      c.beginPath();
      c.rect(0, 0, side, side);
      c.clip();
      c.strokeStyle = ink;
      c.globalAlpha *= 0.8;
      for (let at = -side; at < side; at += 4) {
        c.beginPath();
        c.moveTo(at, side);
        c.lineTo(at + side, 0);
        c.stroke();
      }
      c.restore();
    } else {
      c.fillStyle = ink;
      c.font = `${glyph === "U" ? 500 : 700} ${Math.max(9, Math.round(cell * 0.6))}px ${this.font}`;
      c.textAlign = "center";
      c.textBaseline = "middle";
      c.fillText(glyph, side / 2, side / 2 + 0.5);
    }
    if (decided) this.corner(c, side, ink);
    return canvas;
  }

  legend() {
    const place = this.root.querySelector(".legend");
    const there = GLYPHS.filter((glyph) => glyph !== "~" || this.data.cells.includes("~"));
    const items = [...there.map((glyph) => [glyph, WORDS[glyph]]), ["decided", "decided by a person"]];
    if (this.data.columns.some((column) => column.discarded)) items.push(["∅", "discarded"]);
    this.ratio = window.devicePixelRatio || 1;
    place.replaceChildren(...items.map(([glyph, word]) => {
      if (glyph === "∅") return make("span", "key", `∅ ${word}`);
      return make("span", "key", glyph === "decided" ? this.stampOf("I", 1, 17, 1) : this.stampOf(glyph, 1, 17), word);
    }));
  }

  corner(c, side, ink) {
    const size = Math.max(4, side * 0.3);
    c.fillStyle = ink;
    c.beginPath();
    c.moveTo(side - size, 0);
    c.lineTo(side, 0);
    c.lineTo(side, size);
    c.fill();
  }

  redraw() {
    cancelAnimationFrame(this.frameAsked);
    this.frameAsked = requestAnimationFrame(() => this.draw());
  }

  draw() {
    if (!this.data || !this.canvas.width) return;
    const c = this.context;
    const [wide, high] = [this.canvas.width / this.ratio, this.canvas.height / this.ratio];
    const snap = (length) => Math.round(length * this.ratio) / this.ratio;
    const ox = this.left - snap(this.scroller.scrollLeft);
    const oy = this.top - snap(this.scroller.scrollTop);
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    c.fillStyle = this.ground;
    c.fillRect(0, 0, wide, high);
    const [fromRow, toRow] = this.span(this.y, this.top - oy, high - oy);
    const [fromColumn, toColumn] = this.span(this.x, this.left - ox, wide - ox);
    const { cells, decided, matched, columns } = this.data;
    for (let i = fromRow; i < toRow; i++) {
      for (let j = fromColumn; j < toColumn; j++) {
        const n = i * columns.length + j;
        c.drawImage(this.stamp[cells[n] + matched[n] + decided[n]], ox + this.x[j], oy + this.y[i], this.cell, this.cell);
      }
    }
    this.ring(c, ox, oy);
    this.rowHeads(c, oy, wide, high, fromRow, toRow);
    this.blockHeads(c, oy, wide, high);
    this.columnHeads(c, ox, wide, fromColumn, toColumn);
    this.head(c);
  }

  // First and last+1 of the rows or columns that reach into [low, high).
  span(starts, low, high) {
    let from = 0;
    while (from < starts.length && starts[from] + this.cell <= low) from++;
    let to = from;
    while (to < starts.length && starts[to] < high) to++;
    return [from, to];
  }

  ring(c, ox, oy) {
    const [i, j] = this.cursor;
    if (!this.data.rows.length || !this.data.columns.length) return;
    const [x, y, side] = [ox + this.x[j] - 0.5, oy + this.y[i] - 0.5, this.cell];
    const focused = this.scroller.matches(":focus");
    c.lineWidth = focused ? 5 : 4;
    c.strokeStyle = this.ground;
    c.strokeRect(x, y, side, side);
    c.lineWidth = focused ? 3 : 2;
    c.strokeStyle = focused ? this.accent : this.colours.ring;
    c.strokeRect(x, y, side, side);
  }

  text(c, words, x, y, { size = 12, weight = 400, colour = this.ink, room = 0, align = "left" } = {}) {
    c.font = `${weight} ${size}px ${this.font}`;
    c.fillStyle = colour;
    c.textAlign = align;
    c.textBaseline = "middle";
    c.fillText(room ? this.fit(c, words, room) : words, x, y);
  }

  // The beginning of a text that has room in so many pixels.
  fit(c, words, room) {
    const key = `${c.font} ${Math.round(room)} ${words}`;
    if (!this.fits.has(key)) {
      let shown = words.slice(0, 200);
      if (c.measureText(shown).width > room) {
        let [low, high] = [0, shown.length];
        while (low < high - 1) {
          const middle = (low + high) >> 1;
          if (c.measureText(`${shown.slice(0, middle)}…`).width > room) high = middle;
          else low = middle;
        }
        shown = `${shown.slice(0, low)}…`;
      }
      this.fits.set(key, shown);
    }
    return this.fits.get(key);
  }

  counts(c, numbers, right, y, weight) {
    numbers.forEach((number, k) => this.text(c, String(number), right - (2 - k) * COUNT, y, {
      size: 11, weight, align: "right", colour: number ? this.ink : this.colours.faint,
    }));
  }

  rowHeads(c, oy, wide, high, from, to) {
    c.fillStyle = this.ground;
    c.fillRect(0, this.top, this.left, high);
    for (let i = from; i < to; i++) {
      const y = oy + this.y[i];
      const row = this.data.rows[i];
      const chosen = i === this.cursor[0];
      if (chosen) {
        c.fillStyle = this.colours.tint;
        c.fillRect(0, y - 0.5, this.left - 5, this.cell);
      }
      const size = clamp(Math.round(this.cell * 0.66), 10.5, 13);
      this.text(c, row.key, 12, y + this.cell / 2, { size, weight: chosen ? 650 : 400, room: this.left - 3 * COUNT - 24 });
      this.counts(c, row.counts, this.left - 10, y + this.cell / 2, chosen ? 650 : 400);
    }
  }

  // The heading of the block that is at the top stays there until the next one pushes it away.
  blockHeads(c, oy, wide, high) {
    const { blocks } = this.data;
    blocks.forEach((block, b) => {
      const end = b + 1 < blocks.length ? blocks[b + 1].y : this.height;
      const y = Math.min(Math.max(oy + block.y, this.top), oy + end - BLOCK);
      if (y + BLOCK < this.top || y > high) return;
      c.fillStyle = this.colours.band;
      c.fillRect(0, y, wide, BLOCK - 2);
      this.text(c, block.name, 10, y + BLOCK / 2 - 0.5, { size: 12, weight: 650, room: this.left - 3 * COUNT - 20 });
      this.counts(c, block.counts, this.left - 10, y + BLOCK / 2 - 0.5, 500);
      if (block.note !== block.name) {
        this.text(c, block.note, this.left, y + BLOCK / 2 - 0.5, { size: 12, colour: this.colours.faint, room: wide - this.left - 8 });
      }
    });
  }

  columnHeads(c, ox, wide, from, to) {
    const { columns, spheres } = this.data;
    c.fillStyle = this.ground;
    c.fillRect(0, 0, wide, this.top);
    c.save();
    c.beginPath();
    c.rect(this.left, 0, wide, this.top);
    c.clip();
    const bottom = this.band + NAMES;
    for (let j = from; j < to; j++) {
      const middle = ox + this.x[j] + (this.cell - 1) / 2;
      const column = columns[j];
      const chosen = j === this.cursor[1];
      if (chosen) {
        c.fillStyle = this.colours.tint;
        c.fillRect(ox + this.x[j] - 0.5, this.band, this.cell, this.top - this.band - 3);
      }
      c.save();
      c.translate(middle, bottom - 6);
      c.rotate(-Math.PI / 2);
      const colour = column.retained ? this.ink : this.colours.faint;
      this.text(c, column.recipient, 0, 0.5, { size: 12, weight: chosen ? 650 : 400, colour, room: NAMES - 14 });
      c.restore();
      column.counts.forEach((number, k) => this.text(c, String(number), middle, bottom + (k + 0.5) * COUNT_LINE, {
        size: this.cell < 17 ? 8 : this.cell < 20 ? 9.5 : 11, align: "center", weight: chosen ? 650 : 400,
        colour: number ? this.ink : this.colours.faint,
      }));
      if (column.discarded) {
        this.text(c, "∅", middle, this.top - HEADS_LINE / 2 - 1, { size: 12, align: "center", weight: 650 });
      }
    }
    for (const group of this.band ? spheres : []) {
      const start = ox + this.x[group.start];
      const end = ox + this.x[group.end - 1] + this.cell - 1;
      if (end < this.left) continue;
      c.fillStyle = this.colours.band;
      c.fillRect(start, 0, end - start, this.band - 3);
      const at = Math.max(start, this.left) + 4;
      this.text(c, group.name || "no sphere", at, this.band / 2 - 1, { size: 11, weight: 650, room: end - at - 2 });
    }
    c.restore();
  }

  // The corner says what the numbers are, and which contexts the empty sets mark.
  head(c) {
    c.fillStyle = this.ground;
    c.fillRect(0, 0, this.left, this.top);
    const bottom = this.band + NAMES;
    const faint = { size: 11, colour: this.colours.faint };
    ["N", "I", "U"].forEach((glyph, k) => {
      this.text(c, glyph, this.left - 10, bottom + (k + 0.5) * COUNT_LINE, { ...faint, align: "right", weight: 650 });
      this.text(c, glyph, this.left - 10 - (2 - k) * COUNT, this.top - HEADS_LINE / 2 - 1, { ...faint, align: "right", weight: 650 });
    });
    this.text(c, "attributes of a context", 12, bottom + 1.5 * COUNT_LINE, faint);
    this.text(c, "contexts of an attribute", 12, this.top - HEADS_LINE / 2 - 1, { ...faint, room: this.left - 3 * COUNT - 20 });
    c.strokeStyle = this.colours.line;
    c.lineWidth = 1;
    c.strokeRect(-1, this.top - 1.5, 1e5, 1e5);
  }
}
