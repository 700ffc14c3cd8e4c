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
document.addEventListener("click", (event) => {
  if (!event.target.closest("nav button")) return;
  const boxes = [...document.querySelectorAll("nav input")], on = boxes.some((box) => !box.checked);
  for (const box of boxes) box.checked = on;
  choose();
});
// Pointing at an agent's name or row makes the others' curves faint.
const faint = new CSSStyleSheet();
let pointed = "";
document.adoptedStyleSheets.push(faint);
document.addEventListener("pointerover", (event) => {
  const one = event.pointerType !== "touch" && event.target.closest?.("nav label, tr[data-agent], th[data-agent]");
  const agent = one ? one.dataset.agent || one.querySelector("input").value : "";
  if (agent === pointed) return;
  pointed = agent;
  const own = `[data-agent="${CSS.escape(agent)}"]`;
  faint.replaceSync(agent && `main svg:has(g${own}) g[data-agent]:not(${own}) { opacity: .12 }`);
});
// SVG elements do not know `hidden` by themselves; the style sheet's [hidden] rule serves them too.

// What the pointer is at: values of a plot, or the words that belong to a place on a map.
const show = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const steps = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
const tip = document.createElement("div");
tip.className = "tip";
const guide = draw("line", { class: "guide" });
const leave = () => { guide.remove(); tip.remove(); };
// Beside the pointer, on the side where there is room, so that the curves under it stay in sight.
const place = (event, figure) => {
  figure.append(tip);
  const box = figure.getBoundingClientRect(), x = event.clientX - box.left;
  const room = figure.clientWidth - tip.offsetWidth, right = x + 14;
  tip.style.left = `${Math.max(0, Math.min(room, right <= room ? right : x - tip.offsetWidth - 14))}px`;
  tip.style.top = `${Math.max(0, event.clientY - box.top - tip.offsetHeight / 2)}px`;
};
const looks = () => new Map([...document.querySelectorAll("nav label")].map((label) =>
  [label.querySelector("input").value, `${label.className} ${label.querySelector(".swatch").className}`]));
const swatch = (agent, known) => {
  const one = document.createElement("i");
  one.className = known.get(agent) || "";
  return one;
};
const plotted = new WeakMap();
const plot = (svg) => {
  if (!plotted.has(svg)) plotted.set(svg, { ...JSON.parse(svg.dataset.plot), range: null, log: false });
  return plotted.get(svg);
};
const hidden = (svg, agent) =>
  [...svg.querySelectorAll("g[data-agent]")].some((g) => g.dataset.agent === agent && g.hasAttribute("hidden"));
const at = (event, svg) => {
  const box = svg.getBoundingClientRect();
  return ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
};
// The axis of steps: where a value lies, and back; a logarithmic one begins at the first known value.
const axis = (svg) => {
  const { frame: [left, right, , , x0, x1], range, log, series } = plot(svg);
  const least = Math.min(...series.flatMap((one) => one.x.filter((x) => x > 0)), x1);
  const [from, to] = (range || [x0, x1]).map((x) => (log ? Math.log10(Math.max(x, least)) : x));
  const span = to - from || 1;
  return {
    across: (x) => left + (((log ? Math.log10(Math.max(x, least)) : x) - from) / span) * (right - left),
    value: (at) => { const x = from + ((at - left) / (right - left)) * span; return log ? 10 ** x : x; },
  };
};
const value = (svg, across) => axis(svg).value(across);
const values = (event, svg) => {
  const { frame: [left, right, top, bottom, x0, x1], unit, series } = plot(svg);
  const across = at(event, svg);
  if (across < left || across > right) return leave();
  const x = value(svg, across), known = looks(), lines = [];
  for (const [key, to] of Object.entries({ x1: across, x2: across, y1: top, y2: bottom })) guide.setAttribute(key, to);
  svg.append(guide);
  const head = document.createElement("b");
  head.textContent = steps.format(x1 - x0 > 50 ? Math.round(x) : x) + (unit && " " + unit);
  for (const one of series) {
    if (hidden(svg, one.agent)) continue;
    let before = -1;
    while (before + 1 < one.x.length && one.x[before + 1] <= x) before += 1;
    const y = before < 0 ? null : one.y[before];
    if (y === null || y === undefined) continue;
    const line = document.createElement("div");
    line.append(swatch(one.agent, known), `${one.name}: ${show.format(y + 0)}`);
    lines.push([y, line]);
  }
  tip.replaceChildren(head, ...lines.sort((a, b) => b[0] - a[0]).map(([, line]) => line));
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
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high * (1 + 1e-9); n += 1) found.push(n * step + 0);  // without the sign of -0
  return found;
};
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const small = (number) => compact.format(number).replace("K", "k").replace("-", "\u2212");
let clips = 0;
// Draws a plot anew from its values: for a stretch of the axis, or with a logarithmic one.
const way = (xs, ys, across, up, steps) => {
  let path = "", on = false, last = 0;
  ys.forEach((y, n) => {
    if (y === null) { on = false; return; }
    const [x, to] = [across(xs[n]).toFixed(1), up(y).toFixed(1)];
    if (steps && on && to !== last) path += `L${x} ${last}`;
    path += `${on ? "L" : "M"}${x} ${to}`;
    [on, last] = [true, to];
  });
  return path;
};
const band = ({ x, low, high, steps }, across, up) => {
  const known = x.map((_, n) => n).filter((n) => low[n] !== null && high[n] !== null);
  const pick = (values, order) => order.map((n) => values[n]), back = [...known].reverse();
  return known.length ? `${way(pick(x, known), pick(high, known), across, up, steps)}L${
    way(pick(x, back), pick(low, back), across, up, steps).slice(1)}Z` : "";
};
const powers = (low, high) => {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power += 1)
    for (const factor of high / low < 200 ? [1, 2, 5] : [1]) if (factor * 10 ** power >= low && factor * 10 ** power <= high) found.push(factor * 10 ** power);
  return found;
};
const zoom = (svg, range, log = plot(svg).log) => {
  leave();
  const kept = plot(svg), { frame: [left, right, top, bottom, x0, x1, y0, y1], series, levels } = kept;
  kept.whole ??= svg.innerHTML;
  svg.innerHTML = kept.whole;
  choose(svg);
  [kept.range, kept.log] = [range, log];
  svg.closest("figure").querySelector("button.log")?.setAttribute("aria-pressed", log);
  svg.closest("figure").classList.toggle("zoomed", Boolean(range));
  if (!range && !log) return;
  let [low, high] = [y0, y1];
  if (range) {
    const inside = series.filter((one) => !hidden(svg, one.agent))
      .flatMap((one) => one.y.filter((y, n) => y !== null && one.x[n] >= range[0] && one.x[n] <= range[1]));
    if (inside.length) [low, high] = [Math.min(...inside), Math.max(...inside)];
    const room = 0.08 * (high - low) || 0.5;
    [low, high] = [low - room, high + room];
  }
  const { across, value } = axis(svg);
  const up = (y) => bottom - ((y - low) / (high - low)) * (bottom - top);
  const clip = draw("clipPath", { id: `clip-${(clips += 1)}` });
  clip.append(draw("rect", { x: left, y: top, width: right - left, height: bottom - top }));
  const pane = draw("g", { "clip-path": `url(#clip-${clips})` });
  const names = draw("g", {});
  for (const one of svg.querySelectorAll(".tick, .grid, .top, .reference, .level")) one.remove();
  for (const y of ticks(low, high)) {
    pane.append(draw("line", { class: "grid", x1: left, x2: right, y1: up(y), y2: up(y) }));
    svg.append(draw("text", { class: "tick", x: left - 6, y: up(y) + 4, "text-anchor": "end" }, small(y)));
  }
  for (const x of log ? powers(value(left), value(right)) : ticks(...(range || [x0, x1])))
    svg.append(draw("text", { class: "tick", x: across(x), y: bottom + 16, "text-anchor": "middle" }, small(x)));
  for (const [kind, y, said] of levels) {
    pane.append(draw("line", { class: kind, x1: left, x2: right, y1: up(y), y2: up(y) }));
    names.append(draw("text", { class: "level", x: right - 4, y: up(y) - 5, "text-anchor": "end" }, said));
  }
  [...svg.querySelectorAll("g[data-agent]")].forEach((group, number) => {
    const one = series[number];
    group.querySelector(".line").setAttribute("d", way(one.x, one.y, across, up, one.steps));
    group.querySelector(".band")?.setAttribute("d", band(one, across, up));
    for (const mark of group.querySelectorAll(".mark")) {
      const n = Number(mark.dataset.at);
      mark.setAttribute("transform", `translate(${across(one.x[n]).toFixed(1)} ${up(one.y[n]).toFixed(1)})`);
    }
    pane.append(group);
  });
  pane.append(names);  // over the curves
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

// Tables that fit the page's width have their headers stay below the bar of agents; wider ones scroll in a box of their own.
const fade = (box) => {
  box.classList.toggle("more-right", box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
  box.classList.toggle("more-below", box.scrollTop + box.clientHeight < box.scrollHeight - 1);
};
const sizes = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    if (target.matches("nav")) document.documentElement.style.setProperty("--bar", `${target.offsetHeight}px`);
    else target.classList.toggle("fits", target.firstElementChild.offsetWidth <= target.clientWidth);
    fade(target);
  }
});
document.addEventListener("scroll", (event) => { if (event.target.matches?.(".scroll")) fade(event.target); }, true);
// Every figure can be made as wide as the page, and whole again; rows show the colours of their agents.
const equip = (root = document) => {
  const known = looks();
  for (const one of [document.querySelector("nav"), ...root.querySelectorAll(".scroll")]) sizes.observe(one);
  for (const cell of root.querySelectorAll("tr[data-agent] > td:first-child, thead th[data-agent]")) {
    const agent = cell.dataset.agent || cell.parentElement.dataset.agent;
    if (known.has(agent) && !cell.querySelector("i")) cell.prepend(swatch(agent, known));
  }
  for (const figure of root.querySelectorAll("figure")) {
    if (figure.querySelector(".tools")) continue;
    const tools = document.createElement("div");
    tools.className = "tools";
    const unit = figure.querySelector("svg[data-plot]")?.dataset.plot.includes('"unit":"steps"');
    const kinds = [["⟲", "show all of it", "whole"], ["⤢", "larger or smaller", "larger"]];
    for (const [sign, name, kind] of unit ? [["log", "logarithmic axis of steps, or not", "log"], ...kinds] : kinds) {
      const button = document.createElement("button");
      [button.textContent, button.title, button.className] = [sign, name, kind];
      button.setAttribute("aria-label", name);
      tools.append(button);
    }
    figure.querySelector("figcaption").append(tools);
  }
};
const view = (svg, box) => svg.setAttribute("viewBox", box.map((n) => n.toFixed(1)).join(" "));
const whole = (svg) => {
  svg.dataset.whole ??= svg.getAttribute("viewBox");
  return svg.dataset.whole.split(" ").map(Number);
};
document.addEventListener("click", (event) => {
  const figure = event.target.closest("figure");
  if (event.target.closest(".larger")) {
    figure.classList.toggle("wide");
    const map = figure.querySelector(".pan svg");
    if (map) view(map, whole(map));
  }
  const plots = figure ? [...figure.querySelectorAll("svg[data-plot]")] : [];
  if (event.target.closest(".whole")) for (const svg of plots) zoom(svg, null);
  if (event.target.closest(".log")) for (const svg of plots) zoom(svg, plot(svg).range, !plot(svg).log);
});

// An enlarged map is zoomed with the wheel around the pointer, and dragged.
const enlarged = (event) => event.target.closest?.(".wide .pan svg");
const onMap = (event, svg) => {
  const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
  return [x, y];
};
document.addEventListener("wheel", (event) => {
  const svg = enlarged(event);
  if (!svg) return;
  event.preventDefault();
  const [x, y] = onMap(event, svg), [, , most] = whole(svg), old = svg.viewBox.baseVal;
  const factor = Math.min(most / old.width, Math.max(80 / old.width, 1.0015 ** event.deltaY));
  view(svg, [x - (x - old.x) * factor, y - (y - old.y) * factor, old.width * factor, old.height * factor]);
}, { passive: false });
let held = null;
document.addEventListener("pointerdown", (event) => {
  const svg = enlarged(event);
  if (svg && event.isPrimary) { whole(svg); held = { svg, from: onMap(event, svg) }; }
});
document.addEventListener("pointermove", (event) => {
  if (!held) return;
  const { svg, from } = held, [x, y] = onMap(event, svg), { x: left, y: top, width, height } = svg.viewBox.baseVal;
  view(svg, [left - x + from[0], top - y + from[1], width, height]);
});
for (const kind of ["pointerup", "pointercancel"]) document.addEventListener(kind, () => { held = null; });
equip();

// A link into something folded opens it.
const unfold = () => {
  let one = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (; one; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
};
addEventListener("hashchange", unfold);
unfold();
addEventListener("beforeprint", leave);
