// The page of two runs: what differs between them, and both on the same axes.
const told = JSON.parse(document.getElementById("run").textContent);
const runs = told.runs.map((run, place) => ({ ...run, letter: "AB"[place] }));
const { comparison } = told;

function titles() {
  document.title = `${runs.map(({ name }) => name).join(" and ")} · brim`;
  const lines = runs.map((run, place) => {
    const { state, detail } = comparison.states[place];
    const facts = [state, run.model, run.started ? new Date(run.started * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" }) : ""];
    const swatch = make("i", { class: `block ${place ? WARM[0] : COLD[0]}` });
    const about = make("div", { class: "about" }, ...facts.filter(Boolean).map((fact) => make("span", {}, fact)));
    return make("div", { class: "of" }, make("h1", {}, swatch, `${run.letter} `, run.name), about, detail ? make("p", { class: "quiet" }, detail) : "");
  });
  page.append(make("header", {}, make("div", {}, make("div", { class: "brand" }, "brim"), ...lines), themeButton()));
}

function settingsTable() {
  const rows = comparison.settings.map(({ name, a, b }) => [name, [a, "text"], [b, "text"]]);
  const table = tableOf(["setting", "A", "B"], rows, "differing");
  return card("Settings that differ", grouped(rows.length), rows.length ? table : make("p", { class: "quiet" }, "No setting differs."));
}

function numbersTable() {
  const rows = comparison.numbers.map(({ name, a, b, ratio, better }) => [name, [a, better === "a" ? "best" : ""], [b, better === "b" ? "best" : ""], ratio]);
  if (!rows.length) return card("Numbers", "", make("p", { class: "quiet" }, "Neither run has written a number."));
  return card("Numbers", "the better one in bold", tableOf(["", "A", "B", "B / A"], rows, "numbers"));
}

titles();
for (const note of comparison.notes) page.append(make("p", { class: "remark" }, note));
row(numbersTable(), settingsTable());
row(lossCard(runs), evaluationCard(runs));
row(singleCard(runs, "lr", "Learning rate"), singleCard(runs, "samples_per_second", "Samples a second"));
row(stepTimesCard(runs), stepTimeCard(runs));
row(...sharesCards(runs));
row(memoryCard(runs), feedCard(runs));
row(...otherCards(runs));
thinnedNote(runs);
row(timelineCard(runs));
row(...runs.map(planCard));
root.dataset.charts = document.querySelectorAll(".plot > svg").length; // a sign for tests that the page is complete
