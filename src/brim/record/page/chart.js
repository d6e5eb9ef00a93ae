// Charts in SVG: curves over the steps, or areas that lie on each other.
const HEIGHT = 264;
const COLOURS = 8;
const FEW = 40; // so few points are shown as dots too

// A chart. `curves`: [{label, step, value, epoch, seconds, trend, best, look}]; `zero`: the axis begins at nought;
// `stacked`: areas on each other, of curves that have the same steps; `lines`: [{label, value}] across the chart;
// `range`: the first and the last step of the axis, where they are not those of the curves; `unit` of the values.
class Chart {
  constructor(name, { zero = false, height = HEIGHT, stacked = false, lines = [], range = null, unit = "" } = {}) {
    this.name = name, this.zero = zero, this.height = height, this.isLog = false;
    this.isStacked = stacked, this.lines = lines, this.range = range, this.unit = unit;
    this.curves = [], this.hidden = new Set(), this.at = -1;
    this.legend = make("div", { class: "legend" });
    this.svg = make("svg:svg", { height, tabindex: 0, role: "img" });
    this.tip = make("div", { class: "tip", "aria-live": "polite", hidden: "" });
    this.plot = make("div", { class: "plot" }, this.svg, this.tip);
    this.svg.addEventListener("pointermove", (event) => this.pointAt(event));
    this.svg.addEventListener("pointerdown", (event) => this.pointAt(event));
    this.svg.addEventListener("pointerleave", () => this.point(-1));
    this.svg.addEventListener("blur", () => this.point(-1));
    this.svg.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.plot);
  }

  show(curves) {
    this.curves = curves, this.hidden.clear();
    this.drawLegend();
    this.draw();
  }

  // A button that changes the axis between linear and logarithmic.
  logButton() {
    const button = make("button", { type: "button", class: "log", "aria-pressed": String(this.isLog) }, "log scale");
    button.addEventListener("click", () => {
      this.isLog = !this.isLog;
      button.setAttribute("aria-pressed", String(this.isLog));
      this.draw();
    });
    return button;
  }

  get visible() { return this.curves.filter((curve) => !this.hidden.has(curve)); }

  style(curve) {
    if (curve.look) return curve.look;
    const index = this.curves.indexOf(curve);
    return `c${(index % COLOURS) + 1}${index >= COLOURS ? " dashed" : ""}`;
  }

  drawLegend() {
    const swatch = (curve, extra = "") => make("i", { class: `swatch ${this.style(curve)} ${extra}` });
    const [first] = this.curves;
    if (this.curves.length > 1) {
      this.legend.replaceChildren(...this.curves.map((curve) => {
        const button = make("button", { type: "button", "aria-pressed": "true" }, swatch(curve), curve.label);
        button.addEventListener("click", () => {
          if (!this.hidden.delete(curve)) this.hidden.add(curve);
          button.setAttribute("aria-pressed", String(!this.hidden.has(curve)));
          this.draw();
        });
        return button;
      }));
    } else if (first && first.trend.step.length) {
      const each = make("span", {}, swatch(first, "faint"), "as logged");
      this.legend.replaceChildren(make("span", {}, swatch(first), "mean nearby"), each);
    } else this.legend.replaceChildren();
  }

  // What the axis has to show.
  values() {
    const drawn = (curve) => (this.isStacked ? this.tops(curve).map((sum) => Number(sum.toFixed(1))) : curve.value);
    const all = [...this.visible.flatMap(drawn), ...this.lines.map(({ value }) => value)];
    return all.filter((value) => value !== null && (!this.isLog || value > 0));
  }

  scale() {
    const values = this.values();
    const steps = this.range || this.visible.flatMap((curve) => [curve.step[0], curve.step[curve.step.length - 1]]);
    const low = values.reduce((a, b) => Math.min(a, b), Infinity), high = values.reduce((a, b) => Math.max(a, b), -Infinity);
    const count = Math.max(2, Math.round(this.height / 52));
    this.axis = !values.length ? linearAxis(0, 1, count) : this.isLog ? logAxis(low, high, count) : linearAxis(low, high, count, this.zero);
    this.left = 14 + 7 * Math.max(4, ...this.axis.ticks.map(([, text]) => text.length));
    this.width = Math.max(240, this.plot.clientWidth);
    this.first = Math.min(...steps), this.last = Math.max(...steps);
    this.ends = [this.first, this.last];
    if (!(this.last > this.first)) this.first -= 1, this.last += 1;
    this.x = (step) => this.left + ((step - this.first) / (this.last - this.first)) * (this.width - this.left - 14);
    this.y = (value) => this.height - 28 - this.axis.place(value) * (this.height - 42);
  }

  draw() {
    this.svg.replaceChildren();
    this.svg.setAttribute("aria-label", `${this.name}: a chart; the left and right arrow keys read its values`);
    if (!this.visible.length) return this.point(-1);
    this.scale();
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    for (const [value, text] of this.axis.ticks) {
      const y = Math.round(this.y(value)) + 0.5;
      this.svg.append(make("svg:line", { class: "grid", x1: this.left, x2: this.width - 4, y1: y, y2: y }));
      this.svg.append(make("svg:text", { x: this.left - 10, y: y + 4, "text-anchor": "end" }, text));
    }
    this.drawSteps();
    for (const curve of this.visible) this.isStacked ? this.drawArea(curve) : this.drawCurve(curve);
    for (const line of this.lines) this.drawLine(line);
    for (const curve of this.visible) if (curve.best) this.drawBest(curve);
    this.marks = make("svg:g", {});
    this.svg.append(this.marks);
    this.point(this.at);
  }

  drawSteps() {
    const y = this.height - 28 + 0.5;
    this.svg.append(make("svg:line", { class: "axis", x1: this.left, x2: this.width - 4, y1: y, y2: y }));
    this.svg.append(make("svg:text", { x: this.left - 10, y: y + 20, "text-anchor": "end" }, "step"));
    const step = Math.max(1, roundStep(this.last - this.first, Math.max(2, this.width / 110)));
    for (const value of ticksBetween(...this.ends, step)) {
      const x = this.x(value), anchor = x > this.width - 26 ? "end" : "middle";
      this.svg.append(make("svg:line", { class: "axis", x1: x, x2: x, y1: y, y2: y + 4 }));
      const told = grouped(value), isBesideName = x - 4 * told.length < this.left - 6; // half of what it takes, with a gap
      if (!isBesideName) this.svg.append(make("svg:text", { x: anchor === "end" ? this.width - 2 : x, y: y + 20, "text-anchor": anchor }, told));
    }
  }

  // Where the upper edge of an area lies: its values and those of the areas below it.
  tops(curve, withOwn = true) {
    const below = this.visible.slice(0, this.visible.indexOf(curve) + (withOwn ? 1 : 0));
    return curve.step.map((_, index) => below.reduce((sum, { value }) => sum + (value[index] || 0), 0));
  }

  drawArea(curve) {
    const edge = (values) => curve.step.map((step, index) => `${this.x(step).toFixed(1)},${this.y(values[index]).toFixed(1)}`);
    const upper = edge(this.tops(curve)), lower = edge(this.tops(curve, false));
    if (upper.length === 1) { // of one step: a block of its own width
      const [x, top] = upper[0].split(",").map(Number), bottom = Number(lower[0].split(",")[1]);
      this.svg.append(make("svg:rect", { class: `layer ${this.style(curve)}`, x: x - 24, width: 48, y: top, height: Math.max(0, bottom - top) }));
      return;
    }
    this.svg.append(make("svg:path", { class: `layer ${this.style(curve)}`, d: `M${upper.join("L")}L${lower.reverse().join("L")}Z` }));
  }

  drawLine({ label, value, atLeft }) {
    const y = Math.round(this.y(value)) + 0.5, [x, anchor] = atLeft ? [this.left + 4, "start"] : [this.width - 6, "end"];
    this.svg.append(make("svg:line", { class: "level", x1: this.left, x2: this.width - 4, y1: y, y2: y }));
    this.svg.append(make("svg:text", { class: "level", x, y: y < 24 ? y + 15 : y - 6, "text-anchor": anchor }, label));
  }

  drawCurve(curve) {
    const group = make("svg:g", { class: this.style(curve) });
    const parts = this.parts(curve.step, curve.value);
    const path = (part) => "M" + part.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join("L");
    const dashed = this.style(curve).includes("dashed") ? "dashed" : "", hasTrend = curve.trend.step.length > 0;
    for (const part of parts) {
      const base = this.height - 28, [start, end] = [part[0][0], part[part.length - 1][0]];
      if (this.curves.length === 1 && this.zero && !hasTrend) group.append(make("svg:path", { class: "area", d: `${path(part)}L${end},${base}L${start},${base}Z` }));
      if (part.length > 1) group.append(make("svg:path", { class: `curve ${hasTrend ? "faint" : ""} ${dashed}`, d: path(part) }));
      const dots = part.length === 1 || (curve.step.length <= FEW && !this.zero) ? part : [];
      for (const [x, y] of dots) group.append(make("svg:circle", { class: "dot", cx: x, cy: y, r: part.length === 1 ? 3 : 2.4 }));
    }
    if (hasTrend) for (const part of this.parts(curve.trend.step, curve.trend.value)) group.append(make("svg:path", { class: `curve ${dashed}`, d: path(part) }));
    this.svg.append(group);
  }

  // Stretches without a gap: a value that was not a number, or that a logarithmic axis cannot show, ends one.
  parts(steps, values) {
    const parts = [];
    let open = null;
    steps.forEach((step, index) => {
      if (values[index] === null || !this.axis.shows(values[index])) return void (open = null);
      if (open === null) parts.push((open = []));
      open.push([this.x(step), this.y(values[index])]);
    });
    return parts;
  }

  drawBest(curve) {
    const { step, value, label } = curve.best, x = this.x(step), y = this.y(value);
    const anchor = x > this.width - 80 ? "end" : x < this.left + 60 ? "start" : "middle";
    const text = make("svg:text", { class: "best", x, y: y < 34 ? y + 22 : y - 11, "text-anchor": anchor }, label);
    this.svg.append(make("svg:g", { class: this.style(curve) }, make("svg:circle", { class: "ring", cx: x, cy: y, r: 4.5 }), text));
  }

  // The curve whose steps the crosshair follows.
  get guide() { return this.visible.reduce((a, b) => (b.step.length > a.step.length ? b : a)); }

  pointAt(event) {
    if (!this.visible.length) return;
    const box = this.svg.getBoundingClientRect(), along = (event.clientX - box.left) * (this.width / box.width);
    const share = (along - this.left) / (this.width - this.left - 14);
    this.point(nearest(this.guide.step, this.first + share * (this.last - this.first)));
  }

  key(event) {
    if (!this.visible.length) return;
    const end = this.guide.step.length - 1, stride = event.shiftKey ? Math.ceil(end / 20) : 1;
    const to = { ArrowLeft: this.at < 0 ? end : this.at - stride, ArrowRight: this.at + stride, Home: 0, End: end, Escape: -1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.point(event.key === "Escape" ? -1 : Math.max(0, Math.min(end, to)));
  }

  // Put the crosshair on a point of the guide, or take it away.
  point(index) {
    const isOff = index < 0 || !this.visible.length;
    this.at = isOff ? -1 : Math.min(index, this.guide.step.length - 1);
    this.tip.hidden = isOff;
    if (this.marks) this.marks.replaceChildren();
    if (isOff) return;
    const { step } = this.guide, x = this.x(step[this.at]);
    this.marks.append(make("svg:line", { class: "cross", x1: x, x2: x, y1: 8, y2: this.height - 28 }));
    const rows = this.visible.flatMap((curve) => this.read(curve, step[this.at]));
    this.tip.replaceChildren(make("div", { class: "quiet" }, this.where(this.guide, this.at)), ...rows);
    placeTip(this.tip, this.plot, x);
  }

  where({ step, epoch, seconds }, index) {
    const moments = epoch ? [`epoch ${grouped(epoch[index])}`, ...(seconds[index] === null ? [] : [duration(seconds[index])])] : [];
    return [`step ${grouped(step[index])}`, ...moments].join(" · ");
  }

  // What a curve says at a step; nothing where it has not begun yet, or ended long before.
  read(curve, step) {
    const reach = (this.last - this.first) / 20;
    if (step < curve.step[0] - reach || step > curve.step[curve.step.length - 1] + reach) return [];
    const index = nearest(curve.step, step), value = curve.value[index], style = this.style(curve);
    const at = this.isStacked ? this.tops(curve)[index] : value;
    const row = (label, shown, extra) => make("div", {}, make("i", { class: `swatch ${style} ${extra}` }), make("span", {}, label), make("b", {}, shown));
    if (value !== null && this.axis.shows(value)) {
      this.marks.append(make("svg:g", { class: style }, make("svg:circle", { class: "ring", cx: this.x(curve.step[index]), cy: this.y(at), r: 4 })));
    }
    const own = row(curve.label, value === null ? tidy(value) : tidy(value) + this.unit, curve.trend.step.length ? "faint" : "");
    if (!curve.trend.step.length) return [own];
    return [own, row("mean nearby", tidy(curve.trend.value[nearest(curve.trend.step, step)]) + this.unit, "")];
  }
}
