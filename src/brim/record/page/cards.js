// The cards of a page, each about one thing. `runs`: one run, or two to be seen on the same axes; `letter` tells them apart.
const NO_TREND = { step: [], value: [] };
const COLD = ["c1", "c3", "c6"], WARM = ["c2", "c5", "c4"]; // of two runs, the first one's and the second one's curves
const EVALUATED_LOSS = /^eval\/(.*\/)?loss$/;
const KNOWN = /^(loss|lr|samples_per_second|step_ms|eval\/.*|memory_.*|feed\/.*)$/s;
const ALARMING = /fail|error|warn|alert|memory|oom|nan|bad/;
const SHARES = {
  data_wait: ["data wait", "c2"], copy: ["copy", "c5"], sync: ["sync", "c4"], launch: ["launch", "c7"],
  compute: ["compute", "c1"], rest: ["everything else", "plain"],
};

const isPair = (runs) => runs.length > 1;
const named = (run, name) => run.series.find((series) => series.name === name);
const listed = (facts) => Object.entries(facts).flatMap(([name, value]) => [make("dt", {}, name.replaceAll("_", " ")), make("dd", {}, value)]);

// A curve of a run: `place` counts the curves of that run in its chart.
function curveOf(runs, run, series, label, place, more = {}) {
  if (!isPair(runs)) return { ...series, label, ...more };
  const looks = run === runs[0] ? COLD : WARM, dashed = place >= looks.length ? " dashed" : "";
  return { ...series, label: label ? `${run.letter} · ${label}` : run.letter, look: looks[place % looks.length] + dashed, ...more };
}

// The best evaluation, to be marked on its curve; of two runs without a text, which would lie on the other's.
function bestOf(runs, { key: { best } }, metric) {
  return best && best.name === metric ? { ...best, label: isPair(runs) ? "" : `best ${tidy(best.value)}` } : null;
}

function chartCard(title, note, curves, options, ...tools) {
  const chart = new Chart(title, options);
  const section = make("section", { class: "card" }, heading(title, note, ...tools), chart.legend, chart.plot);
  chart.show(curves);
  return [section, chart];
}

function singleCard(runs, name, title, options = {}) {
  const curves = curvesNamed(runs, name, title);
  return curves.length ? chartCard(title, "", curves, { zero: true, ...options })[0] : null;
}

function curvesNamed(runs, name, title) {
  return runs.flatMap((run) => {
    const series = named(run, name);
    if (!series) return [];
    const trend = name === "lr" ? NO_TREND : series.trend; // a schedule has corners, which a mean would round
    return [curveOf(runs, run, series, isPair(runs) ? "" : title, 0, { trend })];
  });
}

// The losses of training and evaluation, on one axis.
function lossCard(runs) {
  const curves = runs.flatMap((run) => {
    const trained = named(run, "loss");
    const evaluated = run.series.filter(({ name }) => EVALUATED_LOSS.test(name)).map((series, place) => {
      const told = series.name.slice(5), label = told === "loss" ? "evaluation" : told.replace(/\/loss$/, "");
      return curveOf(runs, run, series, label, place + 1, { trend: NO_TREND, best: bestOf(runs, run, told) });
    });
    return [...(trained ? [curveOf(runs, run, trained, "training", 0)] : []), ...evaluated];
  });
  if (!curves.length) return null;
  const values = curves.flatMap(({ value }) => value);
  const note = values.includes(null) ? "gaps: not a number" : curves.length > 1 ? "" : curves[0].label;
  const [section, chart] = chartCard("Loss", note, curves, {}), button = chart.logButton();
  button.disabled = !values.some((value) => value > 0);
  section.firstChild.append(button);
  return section;
}

// ndcg@10 and ndcg@20 are of one family, and so is a metric of several evaluation sets (clean/f1, noisy/f1).
function familyOf(metric) {
  return metric.split("/").pop().split("@")[0];
}

// One chart for all other evaluation metrics: a family at a time.
function evaluationCard(runs) {
  const families = new Map();
  for (const run of runs) {
    for (const series of run.series.filter(({ name }) => name.startsWith("eval/") && !EVALUATED_LOSS.test(name))) {
      const label = series.name.slice(5), family = familyOf(label), best = bestOf(runs, run, label);
      const before = families.get(family) || [], place = before.filter(({ of }) => of === run).length;
      // Evaluations are few and each is one: no mean over neighbours.
      families.set(family, [...before, { ...curveOf(runs, run, series, label, place, { trend: NO_TREND, best }), of: run }]);
    }
  }
  if (!families.size) return null;
  const watched = runs[0].key.best ? familyOf(runs[0].key.best.name) : "";
  const first = families.has(watched) ? watched : [...families.keys()][0];
  let chart = null;
  const chooser = choice("metric", [...families.keys()].map((name) => [name, name]), first, (name) => chart.show(families.get(name)));
  const [section, made] = chartCard("Evaluation", families.size > 1 ? "" : first, families.get(first), {}, ...(families.size > 1 ? [chooser] : []));
  chart = made;
  return section;
}

// How long steps took: a histogram of each run, and the steps that took much longer, by name.
function stepTimesCard(runs) {
  const parts = runs.filter(({ step_times: times }) => times).map((run) => {
    const times = run.step_times, look = isPair(runs) && run !== runs[0] ? WARM[0] : COLD[0];
    const name = isPair(runs) ? `Step time of ${run.letter}` : "Step time";
    const beyond = times.beyond ? ` ${grouped(times.beyond)} took longer than is shown.` : "";
    const most = times.steps >= 100 ? `99 of 100 steps took ${tidy(times.p99, 3)} ms or less` : `the longest step took ${tidy(times.most, 3)} ms`;
    const spread = `${isPair(runs) ? `${run.letter}: ` : ""}${grouped(times.steps)} ${times.steps === 1 ? "step" : "steps"}; ${most}.${beyond}`;
    const chart = new Histogram(name, times, { look, unit: " ms", height: isPair(runs) ? 160 : 200 });
    return make("div", {}, chart.plot, make("p", { class: "caption" }, spread), outliers(times));
  });
  if (!parts.length) return null;
  const windows = runs.map(({ step_times: times }) => (times ? times.window : 1)), window = Math.max(...windows);
  return card("Step time", window > 1 ? `steps by milliseconds, in means of ${grouped(window)}` : "steps by milliseconds", ...parts);
}

function outliers({ outliers: slow, slow_steps: steps, slow_limit: limit }) {
  if (!slow.length) return make("p", { class: "caption" }, "No step took more than twice the median.");
  const named = slow.map(({ first, last, ms }) => {
    const which = first === last ? `step ${grouped(last)}` : `steps ${grouped(first)} to ${grouped(last)}`;
    return make("li", {}, `${which}: `, make("b", {}, `${tidy(ms, 3)} ms`));
  });
  const rest = steps - slow.reduce((sum, { first, last }) => sum + last - first + 1, 0);
  const lead = `${grouped(steps)} ${steps === 1 ? "step" : "steps"} took more than ${tidy(limit, 3)} ms, twice the median:`;
  if (rest > 0) named.push(make("li", { class: "quiet" }, `and ${grouped(rest)} more`));
  return make("div", { class: "caption" }, lead, make("ul", { class: "outliers" }, ...named));
}

// Step times over the run. One step that loads a library takes a hundred times as long as the others: then a log scale.
function stepTimeCard(runs) {
  const curves = curvesNamed(runs, "step_ms", "Step time over the run");
  if (!curves.length) return null;
  const [section, chart] = chartCard("Step time over the run", "ms", curves, { zero: true, unit: " ms" });
  const middle = Math.max(...runs.map(({ step_times: times }) => (times ? times.median : 0)));
  chart.isLog = middle > 0 && curves.flatMap(({ value }) => value).some((value) => value > 10 * middle);
  chart.draw();
  section.firstChild.append(chart.logButton());
  return section;
}

// Where the time of a step goes: a chart for each run, all over the same steps.
function sharesCards(runs) {
  const known = runs.filter(({ shares }) => shares && shares.step.length);
  const steps = known.flatMap(({ shares }) => [shares.step[0], shares.step[shares.step.length - 1]]);
  const range = isPair(known) ? [Math.min(...steps), Math.max(...steps)] : null;
  return known.map((run) => {
    const { is_measured: isMeasured, step, shares } = run.shares;
    const curves = Object.entries(shares).map(([name, share], place) => {
      const [label, look] = Object.hasOwn(SHARES, name) ? SHARES[name] : [name.replaceAll("_", " "), `c${(place % COLOURS) + 1}`];
      return { label, look, step, value: share.map((value) => (value === null ? null : value * 100)), trend: NO_TREND };
    });
    const title = isPair(runs) ? `Where the time goes: ${run.letter}` : "Where the time goes";
    const note = isMeasured ? "percent of a step" : "percent of a step: the data wait alone, worked out from feed/wait_ms and step_ms";
    return chartCard(title, note, curves, { stacked: true, zero: true, height: 220, range, unit: " %" })[0];
  });
}

// Memory over the steps with the forecast across it, and what the forecast consists of.
function memoryCard(runs) {
  const all = runs.flatMap((run) => run.series.filter(({ name }) => name.startsWith("memory_")).map((series) => [run, series]));
  if (!all.length) return null;
  const most = all.flatMap(([, { value }]) => value).reduce((a, b) => Math.max(a, b), 0), [unit, size] = most >= GiB ? ["GiB", GiB] : ["MiB", MiB];
  const places = new Map();
  const curves = all.map(([run, series]) => {
    const place = places.get(run) || 0;
    places.set(run, place + 1);
    return curveOf(runs, run, { ...series, value: series.value.map((value) => (value === null ? null : value / size)) }, series.name.slice(7), place, { trend: NO_TREND });
  });
  const lines = forecastLines(runs, most).map((line) => ({ ...line, value: line.value / size }));
  const note = isPair(curves) ? unit : `${unit}, ${curves[0].label}`;
  const [section] = chartCard("Memory", note, curves, { zero: true, height: 220, lines, unit: ` ${unit}` });
  section.append(...runs.map(forecastParts).filter(Boolean));
  return section;
}

// What torch was forecast to reserve, and what it may. The limit only where it is near: far above, it would press the
// curves to the ground. Two runs with the same line share it.
function forecastLines(runs, most) {
  const lines = runs.filter(({ forecast }) => forecast).flatMap(({ forecast: { reserved, limit }, letter }) => {
    const near = limit && limit <= 1.5 * Math.max(most, reserved);
    return [{ letter, what: "forecast", value: reserved }, ...(near ? [{ letter, what: "limit", value: limit }] : [])];
  });
  const same = ({ what, value }) => lines.filter((line) => line.what === what && line.value === value);
  return lines.filter((line) => same(line)[0] === line).map((line) => {
    const whose = line.letter ? `${same(line).map(({ letter }) => letter).join(", ")}: ` : "";
    return { value: line.value, label: `${whose}${line.what} ${bytes(line.value)}`, atLeft: line.letter === "A" };
  });
}

function forecastParts({ forecast, letter }) {
  if (!forecast) return null;
  const parts = Object.entries(forecast.parts), total = parts.reduce((sum, [, size]) => sum + size, 0);
  const bar = make("svg:svg", { class: "parts", viewBox: "0 0 1000 12", preserveAspectRatio: "none", role: "img", "aria-label": "Parts of the forecast" });
  let from = 0;
  const entries = parts.map(([name, size], place) => {
    const look = `c${(place % COLOURS) + 1}`, width = (size / total) * 1000;
    bar.append(make("svg:rect", { class: `layer ${look}`, x: from, y: 0, width, height: 12 }));
    from += width;
    return make("li", {}, make("i", { class: `block ${look}` }), `${name} `, make("b", {}, bytes(size)));
  });
  const limit = forecast.limit ? `; torch may use ${bytes(forecast.limit)}` : "", peak = forecast.peak_in ? `, its peak in the ${forecast.peak_in}` : "";
  const lead = `Forecast${letter ? ` for ${letter}` : ""}: ${bytes(forecast.reserved)} reserved by torch${forecast.card ? ` on ${forecast.card}` : ""}${peak}${limit}.`;
  const sum = parts.length ? ` With what is outside torch, ${bytes(total)} are taken on the card:` : "";
  const taken = Object.entries(forecast.run_parts || {}), reserved = taken.reduce((all, [, size]) => all + size, 0);
  const real = taken.length ? [make("p", {}, `The run reserved ${bytes(reserved)} at its peak: ${taken.map(([name, size]) => `${name} ${bytes(size)}`).join(", ")}.`)] : [];
  return make("div", { class: "caption forecast" }, make("p", {}, lead + sum), ...(parts.length ? [bar, make("ul", {}, ...entries)] : []), ...real, ...forecast.notes.map((note) => make("p", { class: "quiet" }, note)));
}

function feedCard(runs) {
  const places = new Map();
  const curves = runs.flatMap((run) => run.series.filter(({ name }) => name.startsWith("feed/")).map((series) => {
    const place = places.get(run) || 0;
    places.set(run, place + 1);
    return curveOf(runs, run, series, series.name.slice(5).replace(/_ms$/, ""), place, { trend: NO_TREND });
  }));
  if (!curves.length) return null;
  return chartCard("Data", isPair(curves) ? "ms a batch" : `ms a batch, ${curves[0].label}`, curves, { zero: true, height: 220 })[0];
}

function otherCards(runs) {
  const names = [...new Set(runs.flatMap((run) => run.series.map(({ name }) => name)))].filter((name) => !KNOWN.test(name));
  return names.map((name) => singleCard(runs, name, name, { zero: false, height: 190 }));
}

// What happened when; of two runs, one below the other on the same axis of time.
function timelineCard(runs) {
  const known = runs.filter(({ timeline }) => timeline.length), length = Math.max(...known.map((run) => run.length || 0));
  if (!known.length) return null;
  const parts = known.flatMap((run) => {
    const line = new Timeline(isPair(runs) ? `Course of ${run.letter}` : "Course", run.timeline, length).plot;
    return isPair(runs) ? [make("h3", {}, run.letter), line] : [line];
  });
  return card("Course", "what happened when", ...parts);
}

function planCard(run) {
  if (!run.plan) return null;
  const { settings, reasons, advice } = run.plan, parts = [];
  if (Object.keys(settings).length) parts.push(make("dl", { class: "facts" }, ...listed(settings)));
  if (reasons.length) parts.push(make("h3", {}, "Reasons"), make("ul", { class: "reasons" }, ...reasons.map((one) => make("li", {}, one))));
  if (advice.length) parts.push(make("h3", {}, "Left to you"), make("ul", { class: "reasons" }, ...advice.map((one) => make("li", {}, one))));
  return card(run.letter ? `Plan of ${run.letter}` : "Plan", "what was chosen, and why", ...parts);
}

// Drawings that the workload left, as images: nothing in them runs.
function picturesCards({ pictures }) {
  return pictures.map(({ name, address }) => {
    const title = name[0].toUpperCase() + name.slice(1).replaceAll("-", " ");
    return card(title, "", make("img", { class: "picture", src: address, alt: title }));
  });
}

// What a recommender would show a few people, beside what they watched.
function peopleCard({ people }) {
  if (!people.length) return null;
  const titles = (kind, names, found) => make(kind, {}, ...names.map((name, place) => make("li", found.includes(place) ? { class: "found" } : {}, name)));
  const parts = people.map(({ who, watched, watched_in_all: count, recommended, found }) => make("article", { class: "person" },
    make("h3", {}, who),
    make("div", {}, make("h4", {}, count > watched.length ? `Watched: ${grouped(watched.length)} of ${grouped(count)}` : "Watched"), titles("ul", watched, [])),
    make("div", {}, make("h4", {}, "Recommended"), titles("ol", recommended, found))));
  return card("Recommendations", "for some people of the test data; ✓ is what they did watch", make("div", { class: "people" }, ...parts));
}

function thinnedNote(runs) {
  if (!runs.some((run) => run.is_thinned)) return;
  page.append(make("p", { class: "remark" }, "Long curves are thinned: of each stretch the lowest and the highest value are drawn, so that every spike stays. metrics.jsonl has every number."));
}
