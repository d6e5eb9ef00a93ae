// What happened when: a lane for each kind of event, marks on a line of time. `lanes`: [{lane, marks: [{seconds, line}]}].
const LANE = 30;
const LANE_LOOKS = { "out of memory": "bad", "alerts and warnings": "bad", "broken off": "bad", checkpoints: "c3", "epochs, evaluations": "c6" };

class Timeline {
  constructor(name, lanes, length) {
    Object.assign(this, { name, lanes, length: length > 0 ? length : 1 });
    this.height = lanes.length * LANE + 30;
    this.svg = make("svg:svg", { height: this.height, role: "img", "aria-label": `${name}: a time line of ${lanes.map(({ lane }) => lane).join(", ")}` });
    followPointer(this, "tip wide");
  }

  draw() {
    this.width = Math.max(240, this.plot.clientWidth);
    this.left = this.width < 560 ? 10 : 160; // where there is no room beside the lanes, their names stand above them
    this.x = (seconds) => this.left + (seconds / this.length) * (this.width - this.left - 16);
    const base = this.lanes.length * LANE + 0.5;
    this.svg.replaceChildren();
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.lanes.forEach((lane, index) => this.drawLane(lane, index * LANE + LANE / 2));
    this.svg.append(make("svg:line", { class: "axis", x1: this.left, x2: this.width - 4, y1: base, y2: base }));
    for (const [seconds, text] of timeTicks(this.length, Math.max(2, this.width / 120))) {
      const x = this.x(seconds), anchor = x > this.width - 30 ? "end" : x < 24 ? "start" : "middle";
      this.svg.append(make("svg:line", { class: "axis", x1: x, x2: x, y1: base, y2: base + 4 }));
      this.svg.append(make("svg:text", { x: anchor === "end" ? this.width - 2 : x, y: base + 20, "text-anchor": anchor }, text));
    }
  }

  drawLane({ lane, marks }, y) {
    const isNarrow = this.left < 100, line = isNarrow ? y + 7 : y;
    this.svg.append(make("svg:text", isNarrow ? { x: this.left, y: y - 3 } : { x: this.left - 14, y: y + 4, "text-anchor": "end" }, lane));
    this.svg.append(make("svg:line", { class: "grid", x1: this.left, x2: this.width - 4, y1: line, y2: line }));
    const group = make("svg:g", { class: LANE_LOOKS[lane] || "c1" });
    for (const { seconds } of marks) if (seconds !== null) group.append(make("svg:circle", { class: "mark", cx: this.x(Math.min(seconds, this.length)), cy: line, r: marks.length > 60 ? 3 : 4.5 }));
    this.svg.append(group);
  }

  pointAt(event) {
    const box = this.svg.getBoundingClientRect(), lane = this.lanes[Math.floor((event.clientY - box.top) / LANE)];
    const along = (event.clientX - box.left) * (this.width / box.width);
    const away = ({ seconds }) => (seconds === null ? Infinity : Math.abs(this.x(seconds) - along));
    const near = lane && lane.marks.reduce((a, b) => (away(b) < away(a) ? b : a));
    this.tip.hidden = !near || away(near) > 40;
    if (this.tip.hidden) return;
    const alike = lane.marks.filter((mark) => mark !== near && Math.abs(this.x(mark.seconds) - this.x(near.seconds)) < 6).length;
    this.tip.replaceChildren(make("div", { class: "quiet" }, `${lane.lane} · +${duration(near.seconds)}`), make("p", {}, near.line));
    if (alike) this.tip.append(make("div", { class: "quiet" }, `and ${grouped(alike)} more here`));
    placeTip(this.tip, this.plot, this.x(near.seconds));
  }
}
