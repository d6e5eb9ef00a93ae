// How often a number was how large: bars over equal spans. `counts` of them between `low` and `high`.
class Histogram {
  constructor(name, { low, high, counts, median }, { look = "c1", height = 200, unit = "", things = "steps" } = {}) {
    Object.assign(this, { name, low, high, counts, median, look, height, unit, things });
    this.svg = make("svg:svg", { height, role: "img", "aria-label": `${name}: a histogram from ${tidy(low)} to ${tidy(high)}${unit}` });
    followPointer(this, "tip");
  }

  draw() {
    const { low, counts, svg } = this, high = this.high > low ? this.high : low * 1.1 || 1, base = this.height - 28;
    const axis = linearAxis(0, Math.max(1, ...counts), Math.max(2, Math.round(this.height / 60)), true);
    const left = 14 + 7 * Math.max(4, ...axis.ticks.map(([, text]) => text.length));
    const width = Math.max(240, this.plot.clientWidth), across = width - left - 14;
    const x = (value) => left + ((value - low) / (high - low)) * across, y = (count) => base - axis.place(count) * (this.height - 42);
    Object.assign(this, { left, width, across });
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${width} ${this.height}`);
    for (const [count, text] of axis.ticks.filter(([count]) => Number.isInteger(count))) {
      const at = Math.round(y(count)) + 0.5;
      svg.append(make("svg:line", { class: "grid", x1: left, x2: width - 4, y1: at, y2: at }));
      svg.append(make("svg:text", { x: left - 10, y: at + 4, "text-anchor": "end" }, text));
    }
    const bar = across / counts.length, bars = make("svg:g", { class: this.look });
    counts.forEach((count, index) => {
      const top = count ? Math.min(y(count), base - 1.5) : base; // one step among ten thousand is seen too
      bars.append(make("svg:rect", { class: "bar", x: left + index * bar + 0.5, width: Math.max(1, bar - 1), y: top, height: base - top }));
    });
    svg.append(bars, make("svg:line", { class: "axis", x1: left, x2: width - 4, y1: base + 0.5, y2: base + 0.5 }));
    this.drawValues(x, base, high);
    if (this.median >= low && this.median <= high) this.drawMedian(x(this.median), base);
  }

  drawValues(x, base, high) {
    const step = roundStep(high - this.low, Math.max(2, this.width / 110));
    for (const value of ticksBetween(this.low, high, step)) {
      const at = x(value), isLast = at > this.width - 34;
      this.svg.append(make("svg:line", { class: "axis", x1: at, x2: at, y1: base, y2: base + 4 }));
      this.svg.append(make("svg:text", { x: isLast ? this.width - 2 : at, y: base + 20, "text-anchor": isLast ? "end" : "middle" }, tickText(value, step) + this.unit));
    }
  }

  drawMedian(at, base) {
    const anchor = at > this.width - 110 ? "end" : "start";
    this.svg.append(make("svg:line", { class: "level", x1: at, x2: at, y1: 6, y2: base }));
    this.svg.append(make("svg:text", { class: "level", x: at + (anchor === "end" ? -6 : 6), y: 14, "text-anchor": anchor }, `median ${tidy(this.median, 3)}${this.unit}`));
  }

  pointAt(event) {
    const box = this.svg.getBoundingClientRect(), along = (event.clientX - box.left) * (this.width / box.width) - this.left;
    const index = Math.floor((along / this.across) * this.counts.length), span = (this.high - this.low) / this.counts.length;
    this.tip.hidden = index < 0 || index >= this.counts.length;
    if (this.tip.hidden) return;
    const from = this.low + index * span, range = `${tidy(from)} to ${tidy(from + span)}${this.unit}`;
    this.tip.replaceChildren(make("div", { class: "quiet" }, range), make("div", {}, make("span", {}, this.things), make("b", {}, grouped(this.counts[index]))));
    placeTip(this.tip, this.plot, this.left + along);
  }
}
