"use strict";
// Everything listens on the document, so that parts of the page can be replaced by newer ones (see ../web/live.js).
const SVG = "http://www.w3.org/2000/svg";
const draw = (name, attributes, text = "") => {
  const one = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
  one.textContent = text;
  return one;
};

// Choosing agents: everything that carries an agent's name vanishes with its tick.
const choose = (root = document.querySelector("main")) => {
  const off = new Set([...document.querySelectorAll("nav input:not(:checked)")].map((box) => box.value));
  for (const one of [root, ...root.querySelectorAll("[data-agent]")])
    if (one.dataset.agent) one.toggleAttribute("hidden", off.has(one.dataset.agent));
};
document.addEventListener("change", (event) => { if (event.target.closest("nav")) choose(); });
// SVG elements do not know `hidden` by themselves; the style sheet's [hidden] rule serves them too.

// What the pointer is at: values of a plot, or the words that belong to a place on a map.
const show = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const steps = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
const tip = document.createElement("div");
tip.className = "tip";
const guide = draw("line", { class: "guide" });
const leave = () => { guide.remove(); tip.remove(); };
const place = (event, figure) => {
  figure.append(tip);
  const box = figure.getBoundingClientRect();
  const away = Math.min(event.clientX - box.left + 12, figure.clientWidth - tip.offsetWidth);
  tip.style.left = `${Math.max(0, away)}px`;
  tip.style.top = `${Math.max(0, event.clientY - box.top - tip.offsetHeight - 10)}px`;
};
const plotted = new WeakMap();
const plot = (svg) => {
  if (!plotted.has(svg)) plotted.set(svg, { ...JSON.parse(svg.dataset.plot), range: null });
  return plotted.get(svg);
};
const hidden = (svg, agent) =>
  [...svg.querySelectorAll("g[data-agent]")].some((g) => g.dataset.agent === agent && g.hasAttribute("hidden"));
const at = (event, svg) => {
  const box = svg.getBoundingClientRect();
  return ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
};
const value = (svg, across) => {
  const { frame: [left, right, , , x0, x1], range } = plot(svg);
  const [from, to] = range || [x0, x1];
  return from + ((across - left) / (right - left)) * (to - from);
};
const values = (event, svg) => {
  const { frame: [left, right, top, bottom, x0, x1], unit, series } = plot(svg);
  const across = at(event, svg);
  if (across < left || across > right) return leave();
  const x = value(svg, across);
  for (const [key, to] of Object.entries({ x1: across, x2: across, y1: top, y2: bottom })) guide.setAttribute(key, to);
  svg.append(guide);
  const head = document.createElement("b");
  head.textContent = steps.format(x1 - x0 > 50 ? Math.round(x) : x) + (unit && " " + unit);
  tip.replaceChildren(head);
  for (const one of series) {
    const group = [...svg.querySelectorAll("g[data-agent]")].find((g) => g.dataset.agent === one.agent);
    if (!group || group.hasAttribute("hidden")) continue;
    let before = -1;
    while (before + 1 < one.x.length && one.x[before + 1] <= x) before += 1;
    const y = before < 0 ? null : one.y[before];
    const line = document.createElement("div");
    const dot = document.createElement("i");
    dot.className = group.getAttribute("class");
    line.append(dot, `${one.name}: ${y === null || y === undefined ? "–" : show.format(y)}`);
    tip.append(line);
  }
  tip.style.whiteSpace = "nowrap";
  place(event, svg.closest("figure"));
};
const words = (event, one) => {
  tip.replaceChildren(...one.dataset.tip.split("\n").map((line, number) => {
    const said = document.createElement(number ? "div" : "b");
    said.textContent = line;
    return said;
  }));
  tip.style.whiteSpace = "normal";
  place(event, one.closest("figure"));
};
const point = (event) => {
  const figure = event.target.closest?.("figure");
  if (tip.parentNode && tip.parentNode !== figure) leave();
  const svg = event.target.closest?.("svg[data-plot]"), one = event.target.closest?.("[data-tip]");
  if (svg) values(event, svg);
  else if (one && figure) words(event, one);
  else leave();
};
document.addEventListener("pointermove", point);
document.addEventListener("pointerdown", point);
document.addEventListener("pointerleave", leave, true);

// Zooming: a stretch that is dragged over becomes the whole width, and heights follow; twice clicked, all is back.
const ticks = (low, high) => {
  const rough = (high - low) / 5, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 2.5, 5, 10].find((factor) => power * factor >= rough * 0.999);
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high * (1 + 1e-9); n += 1) found.push(n * step);
  return found;
};
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const small = (number) => compact.format(number).replace("K", "k").replace("-", "\u2212");
let clips = 0;
const zoom = (svg, range) => {
  leave();
  const kept = plot(svg), { frame: [left, right, top, bottom, x0, x1, y0, y1], series } = kept;
  kept.whole ??= svg.innerHTML;
  svg.innerHTML = kept.whole;
  choose(svg);
  kept.range = range;
  svg.closest("figure").classList.toggle("zoomed", Boolean(range));
  if (!range) return;
  const inside = series.filter((one) => !hidden(svg, one.agent))
    .flatMap((one) => one.y.filter((y, n) => y !== null && one.x[n] >= range[0] && one.x[n] <= range[1]));
  let [low, high] = inside.length ? [Math.min(...inside), Math.max(...inside)] : [y0, y1];
  const room = 0.08 * (high - low) || 0.5;
  [low, high] = [low - room, high + room];
  const kx = (x1 - x0) / (range[1] - range[0]), ky = (y1 - y0) / (high - low);
  const across = (x) => left + ((x - range[0]) / (range[1] - range[0])) * (right - left);
  const up = (y) => bottom - ((y - low) / (high - low)) * (bottom - top);
  // Where the old left edge and the old floor come to lie.
  const moved = `matrix(${kx} 0 0 ${ky} ${across(x0) - kx * left} ${up(y0) - ky * bottom})`;
  const clip = draw("clipPath", { id: `clip-${(clips += 1)}` });
  clip.append(draw("rect", { x: left, y: top, width: right - left, height: bottom - top }));
  const pane = draw("g", { "clip-path": `url(#clip-${clips})` });
  for (const one of svg.querySelectorAll(".tick, .grid, .top")) one.remove();
  for (const y of ticks(low, high)) {
    svg.append(draw("line", { class: "grid", x1: left, x2: right, y1: up(y), y2: up(y) }));
    svg.append(draw("text", { class: "tick", x: left - 6, y: up(y) + 4, "text-anchor": "end" }, small(y)));
  }
  for (const x of ticks(...range))
    svg.append(draw("text", { class: "tick", x: across(x), y: bottom + 16, "text-anchor": "middle" }, small(x)));
  for (const group of svg.querySelectorAll("g[data-agent]")) {
    group.setAttribute("transform", moved);
    pane.append(group);
  }
  svg.append(clip, pane);
};
let drag = null;
const selection = draw("rect", { class: "selection" });
document.addEventListener("pointerdown", (event) => {
  const svg = event.target.closest?.("svg[data-plot]");
  if (svg && event.isPrimary && !event.button) drag = { svg, from: at(event, svg) };
});
document.addEventListener("pointermove", (event) => {
  if (!drag) return;
  const { frame: [left, right, top, bottom] } = plot(drag.svg);
  const ends = [drag.from, at(event, drag.svg)].map((x) => Math.min(right, Math.max(left, x))).sort((a, b) => a - b);
  drag.ends = ends[1] - ends[0] > 12 ? ends : null;
  if (!drag.ends) return selection.remove();
  const box = { x: ends[0], width: ends[1] - ends[0], y: top, height: bottom - top };
  for (const [key, to] of Object.entries(box)) selection.setAttribute(key, to);
  drag.svg.append(selection);
});
document.addEventListener("pointerup", () => {
  selection.remove();
  if (drag?.ends) zoom(drag.svg, drag.ends.map((x) => value(drag.svg, x)));
  drag = null;
});
document.addEventListener("pointercancel", () => { selection.remove(); drag = null; });
document.addEventListener("dblclick", (event) => {
  const svg = event.target.closest?.("svg[data-plot]");
  if (svg) zoom(svg, null);
});

// Every figure can be made as wide as the page, and whole again.
const equip = (root = document) => {
  for (const figure of root.querySelectorAll("figure")) {
    if (figure.querySelector(".tools")) continue;
    const tools = document.createElement("div");
    tools.className = "tools";
    for (const [sign, name, kind] of [["⟲", "show all of it", "whole"], ["⤢", "larger or smaller", "larger"]]) {
      const button = document.createElement("button");
      [button.textContent, button.title, button.className] = [sign, name, kind];
      button.setAttribute("aria-label", name);
      tools.append(button);
    }
    figure.querySelector("figcaption").append(tools);
    // A map that is larger than its place shows where the game begins.
    const pan = figure.querySelector(".pan"), start = pan?.querySelector(".start rect");
    if (!start) continue;
    const { x, y, width } = start.getBBox();
    pan.scrollTo(x - (pan.clientWidth - width) / 2, y - pan.clientHeight / 2);
  }
};
document.addEventListener("click", (event) => {
  const figure = event.target.closest("figure");
  if (event.target.closest(".larger")) figure.classList.toggle("wide");
  if (event.target.closest(".whole")) zoom(figure.querySelector("svg[data-plot]"), null);
});
equip();

// A link into something folded opens it.
const unfold = () => {
  let one = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (; one; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
};
addEventListener("hashchange", unfold);
unfold();
addEventListener("beforeprint", () => { for (const one of document.querySelectorAll("details")) one.open = true; });
