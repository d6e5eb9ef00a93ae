"use strict";
// Small line charts in SVG. Every text of a run goes in as a text node, so that none of it is ever read as markup.

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 264;
const COLOURS = 6;
const FEW = 40; // so few points are shown as dots too

function make(tag, attributes, ...children) {
  const element = tag.startsWith("svg:") ? document.createElementNS(SVG, tag.slice(4)) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  element.append(...children); // a string becomes a text node
  return element;
}

const grouped = (value, digits = 0) => value.toLocaleString("en-US", { maximumFractionDigits: digits });
const exponent = (value, digits) => value.toExponential(digits).replace(/\.?0+e/, "e").replace("e+", "e");

function tidy(value, digits = 4) {
  if (value === null || value === undefined) return "not a number";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e9 || size < 1e-3)) return exponent(value, digits - 2);
  return size >= 1000 ? grouped(value) : String(Number(value.toPrecision(digits)));
}

function duration(seconds) {
  const pad = (value) => String(value).padStart(2, "0");
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const whole = Math.round(seconds), minutes = Math.floor(whole / 60), hours = Math.floor(minutes / 60);
  if (hours === 0) return `${minutes} min ${pad(whole % 60)} s`;
  return hours < 48 ? `${hours} h ${pad(minutes % 60)} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

// Ticks: steps of 1, 2 or 5 times a power of ten, about `count` of them.
function roundStep(span, count) {
  const power = 10 ** Math.floor(Math.log10(span / count));
  const times = span / count / power;
  return power * (times < 1.5 ? 1 : times < 3.5 ? 2 : times < 7.5 ? 5 : 10);
}

function ticksBetween(low, high, step) {
  const ticks = [];
  for (let index = Math.ceil(low / step - 1e-9); index * step <= high + step * 1e-9; index++) ticks.push(index * step);
  return ticks;
}

function tickText(value, step) {
  if (value === 0) return "0";
  if (step < 1e-4 || Math.abs(value) >= 1e9) return exponent(Number(value.toPrecision(6)), 3);
  return value.toLocaleString("en-US", { minimumFractionDigits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) });
}

function linearAxis(low, high, count, fromZero) {
  if (fromZero) low = Math.min(0, low), high = Math.max(0, high);
  if (!(high > low)) low -= Math.abs(low) / 10 || 1, high += Math.abs(high) / 10 || 1;
  const step = roundStep(high - low, count);
  low = Math.floor(low / step + 1e-6) * step, high = Math.ceil(high / step - 1e-6) * step;
  const ticks = ticksBetween(low, high, step).map((value) => [value, tickText(value, step)]);
  return { ticks, place: (value) => (value - low) / (high - low), shows: () => true };
}

function logAxis(low, high, count) {
  low *= 0.93, high *= 1.07;
  const decades = Math.log10(high / low);
  const factors = decades > 4 ? [1] : decades > 2.2 ? [1, 3] : decades > 1.3 ? [1, 2, 5] : [1, 2, 3, 5, 7];
  const every = Math.ceil(decades / 7); // many decades: not all of them get a label
  let ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    if (power % every === 0) ticks.push(...factors.map((factor) => factor * 10 ** power));
  }
  ticks = ticks.filter((value) => value >= low && value <= high).map((value) => [value, tidy(value, 3)]);
  if (ticks.length < 3) {
    const step = roundStep(high - low, count);
    ticks = ticksBetween(low, high, step).filter((value) => value > 0).map((value) => [value, tickText(value, step)]);
  }
  return { ticks, place: (value) => Math.log(value / low) / Math.log(high / low), shows: (value) => value > 0 };
}

function nearest(sorted, value) {
  let low = 0, high = sorted.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle; else high = middle;
  }
  return Math.abs(sorted[low] - value) <= Math.abs(sorted[high] - value) ? low : high;
}

// A chart. `curves`: [{label, step, value, epoch, seconds, trend, best}]; `zero`: the axis begins at nought.
class Chart {
  constructor(name, { zero = false, height = HEIGHT } = {}) {
    this.name = name, this.zero = zero, this.height = height, this.isLog = false;
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

  get visible() { return this.curves.filter((curve) => !this.hidden.has(curve)); }

  style(curve) {
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

  scale() {
    const values = this.visible.flatMap((curve) => curve.value).filter((value) => value !== null && (!this.isLog || value > 0));
    const steps = this.visible.flatMap((curve) => [curve.step[0], curve.step[curve.step.length - 1]]);
    const low = values.reduce((a, b) => Math.min(a, b), Infinity), high = values.reduce((a, b) => Math.max(a, b), -Infinity);
    const count = Math.max(2, Math.round(this.height / 52));
    this.axis = !values.length ? linearAxis(0, 1, count) : this.isLog ? logAxis(low, high, count) : linearAxis(low, high, count, this.zero);
    this.left = 14 + 7 * Math.max(4, ...this.axis.ticks.map(([, text]) => text.length));
    this.width = Math.max(240, this.plot.clientWidth);
    this.first = Math.min(...steps), this.last = Math.max(...steps);
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
    for (const curve of this.visible) this.drawCurve(curve);
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
    for (const value of ticksBetween(this.first, this.last, step)) {
      const x = this.x(value), anchor = x > this.width - 26 ? "end" : "middle";
      this.svg.append(make("svg:line", { class: "axis", x1: x, x2: x, y1: y, y2: y + 4 }));
      this.svg.append(make("svg:text", { x: anchor === "end" ? this.width - 2 : x, y: y + 20, "text-anchor": anchor }, grouped(value)));
    }
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
    const { step, value } = curve.best, x = this.x(step), y = this.y(value);
    const anchor = x > this.width - 80 ? "end" : x < this.left + 60 ? "start" : "middle";
    const text = make("svg:text", { class: "best", x, y: y < 34 ? y + 22 : y - 11, "text-anchor": anchor }, `best ${tidy(value)}`);
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
    const { step, epoch, seconds } = this.guide, x = this.x(step[this.at]);
    this.marks.append(make("svg:line", { class: "cross", x1: x, x2: x, y1: 8, y2: this.height - 28 }));
    const rows = this.visible.flatMap((curve) => this.read(curve, step[this.at]));
    this.tip.replaceChildren(make("div", { class: "quiet" }, `step ${grouped(step[this.at])} · epoch ${grouped(epoch[this.at])} · ${duration(seconds[this.at])}`), ...rows);
    const room = this.tip.offsetWidth, width = this.plot.clientWidth, beside = x + 14 + room > width ? x - 14 - room : x + 14;
    this.tip.style.transform = `translate(${Math.max(0, Math.min(beside, width - room))}px, 10px)`;
  }

  read(curve, step) {
    const index = nearest(curve.step, step), value = curve.value[index], style = this.style(curve);
    const row = (label, shown, extra) => make("div", {}, make("i", { class: `swatch ${style} ${extra}` }), make("span", {}, label), make("b", {}, shown));
    if (value !== null && this.axis.shows(value)) {
      this.marks.append(make("svg:g", { class: style }, make("svg:circle", { class: "ring", cx: this.x(curve.step[index]), cy: this.y(value), r: 4 })));
    }
    const own = row(curve.label, tidy(value), curve.trend.step.length ? "faint" : "");
    if (!curve.trend.step.length) return [own];
    return [own, row("mean nearby", tidy(curve.trend.value[nearest(curve.trend.step, step)]), "")];
  }
}
