// The page of one run: what there is to show, from top to bottom. A part without data is left out.
const run = JSON.parse(document.getElementById("run").textContent);

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
  const isOver = !/^(failed|unfinished|by )/.test(run.ended);
  const isWhole = isOver && epochs > 0 && steps % epochs === 0; // a run that ended within an epoch has no steps an epoch
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
    const value = run.table[name][metric], isBest = names.length === 1 || value === best(metric);
    return [value === undefined ? "–" : Math.abs(value) < 1 ? value.toFixed(4) : tidy(value, 5), isBest ? "best" : ""];
  };
  const rows = names.map((name) => [name, ...metrics.map((metric) => cell(name, metric))]);
  const table = tableOf(["", ...metrics], rows, metrics.length < 5 ? "short" : "");
  row(card(run.table_title, names.length > 1 ? "the best of each metric in bold" : "", table));
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
  const facts = listed(run.machine), about = listed(run.about);
  row(about.length && card("Run", "", make("dl", { class: "facts" }, ...about)), planCard(run));
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
row(...picturesCards(run));
row(peopleCard(run));
row(lossCard([run]), evaluationCard([run]));
row(singleCard([run], "lr", "Learning rate"), singleCard([run], "samples_per_second", "Samples a second"));
row(stepTimesCard([run]), stepTimeCard([run]));
row(...sharesCards([run]));
row(memoryCard([run]), feedCard([run]));
row(...otherCards([run]));
thinnedNote([run]);
row(timelineCard([run]));
events();
settings();
root.dataset.charts = document.querySelectorAll(".plot > svg").length; // a sign for tests that the page is complete
