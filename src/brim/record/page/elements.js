"use strict";
// The elements of a page. Every text of a run goes in as a text node, so that none of it is ever read as markup.

const SVG = "http://www.w3.org/2000/svg";

function make(tag, attributes, ...children) {
  const element = tag.startsWith("svg:") ? document.createElementNS(SVG, tag.slice(4)) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  element.append(...children); // a string becomes a text node
  return element;
}

const page = document.getElementById("page");
const root = document.documentElement;

const card = (title, note, ...parts) => make("section", { class: "card" }, heading(title, note), ...parts);
const row = (...cards) => cards.some(Boolean) && page.append(make("div", { class: "row" }, ...cards.filter(Boolean)));

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

// Beside `x`, on the side that has room for it.
function placeTip(tip, plot, x) {
  const room = tip.offsetWidth, width = plot.clientWidth, beside = x + 14 + room > width ? x - 14 - room : x + 14;
  tip.style.transform = `translate(${Math.max(0, Math.min(beside, width - room))}px, 10px)`;
}

// Rows of cells under heads. A cell is a text, or [text, class]; the first one of a row is its name.
function tableOf(heads, rows, look = "") {
  const cell = (tag, content, attributes = {}) => {
    const [text, style] = Array.isArray(content) ? content : [content, ""];
    return make(tag, style ? { ...attributes, class: style } : attributes, text);
  };
  const head = make("tr", {}, ...heads.map((name) => make("th", { scope: "col" }, name)));
  const body = rows.map(([name, ...cells]) => make("tr", {}, cell("th", name, { scope: "row" }), ...cells.map((one) => cell("td", one))));
  const table = make("table", look ? { class: look } : {}, make("thead", {}, head), make("tbody", {}, ...body));
  return make("div", { class: "scroll", tabindex: 0 }, table);
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

// Gives a drawing (its `svg`, `draw()` and `pointAt(event)`) a plot that follows the width, and a tip by the pointer.
function followPointer(drawing, look) {
  drawing.tip = make("div", { class: look, hidden: "" });
  drawing.plot = make("div", { class: "plot" }, drawing.svg, drawing.tip);
  for (const kind of ["pointermove", "pointerdown"]) drawing.svg.addEventListener(kind, (event) => drawing.pointAt(event));
  drawing.svg.addEventListener("pointerleave", () => { drawing.tip.hidden = true; });
  new ResizeObserver(() => drawing.draw()).observe(drawing.plot);
  drawing.draw();
}
