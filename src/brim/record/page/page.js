
// The page of one run: what there is to show, from top to bottom. A part without data is left out.
const run = JSON.parse(document.getElementById("run").textContent);
const page = document.getElementById("page");
const root = document.documentElement;
const MiB = 2 ** 20, GiB = 2 ** 30;
const ALARMING = /fail|error|warn|memory|oom|nan|bad/;

const card = (title, note, ...parts) => make("section", { class: "card" }, heading(title, note), ...parts);
const row = (...cards) => cards.some(Boolean) && page.append(make("div", { class: "row" }, ...cards.filter(Boolean)));
const named = (name) => run.series.find((series) => series.name === name);

function heading(title, note, ...tools) {
  return make("div", { class: "head" }, make("h2", {}, title, note ? make("span", {}, note) : ""), ...tools);
}

// Buttons of which one is pressed.
function choice(label, names, chosen, choose) {
  const buttons = names.map(([name, shown]) => {
    const button = make("button", { type: "button", "aria-pressed": String(name === chosen) }, shown);
    button.addEventListener("click", () => {
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      choose(name);
    });
    return button;
  });
  return make("div", { class: "choice", role: "group", "aria-label": label }, ...buttons);
}

function bytes(value) {
  return value >= GiB ? `${grouped(value / GiB, 2)} GiB` : `${grouped(value / MiB, 1)} MiB`;
}

// The theme: as the system says, until the button or the address (#dark, #light) says otherwise.
function themeButton() {
  const button = make("button", { type: "button", class: "theme" });
  const isDark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const refresh = () => button.replaceChildren(isDark() ? "☀ Light" : "☾ Dark");
  const obey = () => {
    if (["#dark", "#light"].includes(location.hash)) root.dataset.theme = location.hash.slice(1);
    refresh();
  };
  button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; refresh(); });
  addEventListener("hashchange", obey);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refresh);
  obey();
  return button;
}

function title() {
  document.title = `${run.name} · brim`;
  const started = new Date(run.started * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
  const facts = [run.model, run.workload && run.workload !== run.model ? run.workload : "", run.started ? `started ${started}` : ""];
  const looks = { done: ["good", "✓ done"], failed: ["bad", "✕ failed"], unfinished: ["", "not finished"] };
  const [look, words] = Object.hasOwn(looks, run.ended) ? looks[run.ended] : ["", `stopped: ${run.ended}`];
  const about = make("div", { class: "about" }, make("span", { class: `state ${look}` }, words));
  about.append(...facts.filter(Boolean).map((fact) => make("span", {}, fact)));
  const names = make("div", {}, make("div", { class: "brand" }, "brim"), make("h1", {}, run.name), about);
  page.append(make("header", {}, names, themeButton()));
}

// Why a run failed, and how to go on with one that is not done.
function ending() {
  if (run.ended === "done") return;
  const parts = run.reason ? [make("p", { class: "reason" }, run.reason)] : [];
  if (run.ended === "unfinished") parts.push(make("p", {}, "The run was going on when this page was written, or was killed."));
  if (run.resume) parts.push(make("p", { class: "quiet" }, "It goes on from its last checkpoint with ", make("code", {}, `trainer.fit(resume="${run.resume}")`), run.workload ? " or " : "", run.workload ? make("code", {}, `brim train --resume ${run.resume}`) : "", "."));
  if (parts.length) page.append(make("section", { class: `card ending ${run.reason ? "bad" : ""}` }, ...parts));
}

function keyNumbers() {
  const { steps, epochs, seconds, best, samples_per_second: speed, step_ms: step, peak_memory: peak } = run.key;
  const list = make("dl", { class: "keys" });
  const add = (label, value, note = "") => {
    if (value === null) return;
    const [, number, unit] = /^([\d.,e-]+)(.*)$/.exec(value) || [0, value, ""]; // "3 h 12 min" stays in one piece
    const isPlain = !/\d/.test(unit);
    const shown = make("dd", { class: "number" }, isPlain ? number : value, make("span", { class: "unit" }, isPlain ? unit : ""));
    list.append(make("div", {}, make("dt", {}, label), shown, make("dd", { class: "note" }, note)));
  };
  const pace = step === null ? "" : `${tidy(step, 3)} ms a step, steps alone`;
  const isWhole = epochs > 0 && steps % epochs === 0; // a run that ended within an epoch has no steps an epoch
  add("Steps", steps === null ? null : grouped(steps), isWhole ? `${grouped(steps / epochs)} an epoch` : "");
  add("Epochs", epochs === null ? null : grouped(epochs), isWhole && seconds ? `${duration(seconds / epochs)} each` : "");
  add("Time", seconds === null ? null : duration(seconds), pace);
  add(`Best ${best ? best.name : ""}`, best && tidy(best.value), best ? `epoch ${grouped(best.epoch)}, step ${grouped(best.step)}` : "");
  add("Samples a second", speed === null ? null : tidy(Number(speed.toPrecision(3))), "median");
  add("Peak memory", peak && bytes(peak.bytes), peak ? peak.name : "");
  if (list.children.length) page.append(list);
}

function testTable() {
  const names = Object.keys(run.table), metrics = [...new Set(names.flatMap((name) => Object.keys(run.table[name])))];
  if (!names.length) return;
  const best = (metric) => {
    const values = names.map((name) => run.table[name][metric]).filter((value) => value !== undefined);
    return run.lower_is_better.includes(metric) ? Math.min(...values) : Math.max(...values);
  };
  const cell = (name, metric) => {
    const value = run.table[name][metric];
    const isBest = names.length === 1 || value === best(metric);
    return make("td", isBest ? { class: "best" } : {}, value === undefined ? "–" : Math.abs(value) < 1 ? value.toFixed(4) : tidy(value, 5));
  };
  const head = make("tr", {}, make("th", {}, ""), ...metrics.map((metric) => make("th", { scope: "col" }, metric)));
  const body = names.map((name) => make("tr", {}, make("th", { scope: "row" }, name), ...metrics.map((metric) => cell(name, metric))));
  const table = make("table", metrics.length < 5 ? { class: "short" } : {}, make("thead", {}, head), make("tbody", {}, ...body));
  row(card(run.table_title, names.length > 1 ? "the best of each metric in bold" : "", make("div", { class: "scroll", tabindex: 0 }, table)));
}

function chartCard(title, note, curves, options, ...tools) {
  const chart = new Chart(title, options);
  const section = make("section", { class: "card" }, heading(title, note, ...tools), chart.legend, chart.plot);
  chart.show(curves);
  return [section, chart];
}

const NO_TREND = { step: [], value: [] };

function single(name, title, options = {}) {
  const series = named(name);
  if (!series) return null;
  const trend = name === "lr" ? NO_TREND : series.trend; // a schedule has corners, which a mean would round
  return chartCard(title, "", [{ ...series, label: title, trend }], { zero: true, ...options })[0];
}

const EVALUATED_LOSS = /^eval\/(.*\/)?loss$/;

// The losses of training and evaluation, on one axis.
function loss() {
  const { best } = run.key, trained = named("loss");
  const evaluated = run.series.filter(({ name }) => EVALUATED_LOSS.test(name)).map((series) => {
    const label = series.name.slice(5), isBest = best && label === best.name;
    return { ...series, label: label === "loss" ? "evaluation" : label.replace(/\/loss$/, ""), trend: NO_TREND, best: isBest ? best : null };
  });
  const curves = [...(trained ? [{ ...trained, label: "training" }] : []), ...evaluated];
  if (!curves.length) return null;
  const values = curves.flatMap(({ value }) => value);
  const button = make("button", { type: "button", class: "log", "aria-pressed": "false" }, "log scale");
  const note = values.includes(null) ? "gaps: not a number" : curves.length > 1 ? "" : curves[0].label;
  const [section, chart] = chartCard("Loss", note, curves, {}, button);
  button.disabled = !values.some((value) => value > 0);
  button.addEventListener("click", () => {
    chart.isLog = !chart.isLog;
    button.setAttribute("aria-pressed", String(chart.isLog));
    chart.draw();
  });
  return section;
}

// ndcg@10 and ndcg@20 are of one family, and so is a metric of several evaluation sets (clean/f1, noisy/f1).
function familyOf(metric) {
  return metric.split("/").pop().split("@")[0];
}

// One chart for all other evaluation metrics: a family at a time.
function evaluation() {
  const families = new Map(), { best } = run.key;
  for (const series of run.series.filter(({ name }) => name.startsWith("eval/") && !EVALUATED_LOSS.test(name))) {
    const label = series.name.slice(5), family = familyOf(label), isBest = best && label === best.name;
    // Evaluations are few and each is one: no mean over neighbours.
    const curve = { ...series, label, trend: NO_TREND, best: isBest ? best : null };
    families.set(family, [...(families.get(family) || []), curve]);
  }
  if (!families.size) return null;
  const watched = best ? familyOf(best.name) : "";
  const first = families.has(watched) ? watched : [...families.keys()][0];
  let chart = null;
  const chooser = choice("metric", [...families.keys()].map((name) => [name, name]), first, (name) => chart.show(families.get(name)));
  const [section, made] = chartCard("Evaluation", families.size > 1 ? "" : first, families.get(first), {}, ...(families.size > 1 ? [chooser] : []));
  chart = made;
  return section;
}

function memory() {
  const series = run.series.filter(({ name }) => name.startsWith("memory_"));
  if (!series.length) return null;
  const most = Math.max(...series.flatMap(({ value }) => value)), [unit, size] = most >= GiB ? ["GiB", GiB] : ["MiB", MiB];
  const curves = series.map((one) => ({
    ...one, label: one.name.slice(7), trend: NO_TREND, value: one.value.map((value) => (value === null ? null : value / size)),
  }));
  return chartCard("Memory", curves.length > 1 ? unit : `${unit}, ${curves[0].label}`, curves, { zero: true, height: 220 })[0];
}

function feed() {
  const series = run.series.filter(({ name }) => name.startsWith("feed/"));
  if (!series.length) return null;
  const curves = series.map((one) => ({ ...one, label: one.name.slice(5, -3), trend: NO_TREND }));
  return chartCard("Data", curves.length > 1 ? "ms a batch" : `ms a batch, ${curves[0].label}`, curves, { zero: true, height: 220 })[0];
}

function others() {
  const known = /^(loss|lr|samples_per_second|step_ms|eval\/.*|memory_.*|feed\/.*)$/s;
  const rest = run.series.filter(({ name }) => !known.test(name));
  if (rest.length) row(...rest.map(({ name }) => single(name, name, { zero: false, height: 190 })));
}

function events() {
  if (!run.events.length) return;
  const entries = run.events.map(({ seconds, kind, line }) => {
    const look = ALARMING.test(kind) ? { class: "bad" } : {};
    const when = make("time", {}, seconds === null ? "" : `+${duration(seconds)}`);
    return [kind, make("li", look, when, make("span", { class: "kind" }, kind), make("span", { class: "line" }, line))];
  });
  const list = make("ol", { class: "events" }, ...entries.map(([, entry]) => entry));
  if (run.events_left_out) entries[run.first_events - 1][1].after(make("li", { class: "gap" }, `${grouped(run.events_left_out)} events are not shown here; events.jsonl has them all`));
  const kinds = [...new Set(run.events.map(({ kind }) => kind))];
  const names = [[null, "all"], ...kinds.map((kind) => [kind, kind])];
  const filter = choice("kind of event", names, null, (chosen) => {
    for (const [kind, entry] of entries) entry.hidden = chosen !== null && kind !== chosen;
  });
  const total = grouped(run.events.length + run.events_left_out);
  const scroll = make("div", { class: "scroll", tabindex: 0 }, list);
  row(make("section", { class: "card" }, heading("Events", total, ...(kinds.length > 1 ? [filter] : [])), scroll));
}

function settings() {
  const listed = (facts) => Object.entries(facts).flatMap(([name, value]) => [make("dt", {}, name.replaceAll("_", " ")), make("dd", {}, value)]);
  const facts = listed(run.machine), about = listed(run.about);
  row(about.length && card("Run", "", make("dl", { class: "facts" }, ...about)));
  row(
    run.config && card("Configuration", "config.yaml", make("div", { class: "scroll", tabindex: 0 }, make("pre", {}, run.config))),
    facts.length && card("Machine", "", make("dl", { class: "facts" }, ...facts)),
  );
}

title();
ending();
keyNumbers();
if (!run.series.length) page.append(make("section", { class: "card empty" }, "This run has not written any numbers yet."));
testTable();
row(loss(), evaluation());
row(single("lr", "Learning rate"), single("samples_per_second", "Samples a second"));
row(memory(), feed());
others();
events();
settings();
root.dataset.charts = document.querySelectorAll("svg").length; // a sign for tests that the page is complete
