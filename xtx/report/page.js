"use strict";
// Choosing agents: everything that carries an agent's name vanishes with its tick.
for (const box of document.querySelectorAll("nav input")) {
  box.addEventListener("change", () => {
    for (const one of document.querySelectorAll("main [data-agent]"))
      if (one.dataset.agent === box.value) one.toggleAttribute("hidden", !box.checked);
  });
}
// SVG elements do not know `hidden` by themselves; the style sheet's [hidden] rule serves them too.

// Values under the pointer.
const show = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const steps = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
for (const svg of document.querySelectorAll("svg[data-plot]")) {
  const { frame, unit, series } = JSON.parse(svg.dataset.plot);
  const [left, right, top, bottom, x0, x1] = frame;
  const guide = document.createElementNS("http://www.w3.org/2000/svg", "line");
  guide.setAttribute("class", "guide");
  guide.setAttribute("y1", top);
  guide.setAttribute("y2", bottom);
  const tip = document.createElement("div");
  tip.className = "tip";
  const leave = () => { guide.remove(); tip.remove(); };
  const move = (event) => {
    const box = svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
    if (at < left || at > right) return leave();
    const x = x0 + ((at - left) / (right - left)) * (x1 - x0);
    guide.setAttribute("x1", at);
    guide.setAttribute("x2", at);
    svg.append(guide);
    tip.replaceChildren();
    const head = document.createElement("b");
    head.textContent = steps.format(x1 - x0 > 50 ? Math.round(x) : x) + (unit && " " + unit);
    tip.append(head);
    for (const one of series) {
      const group = [...svg.querySelectorAll("g[data-agent]")].find((g) => g.dataset.agent === one.agent);
      if (!group || group.hasAttribute("hidden")) continue;
      let place = -1;
      while (place + 1 < one.x.length && one.x[place + 1] <= x) place += 1;
      const value = place < 0 ? null : one.y[place];
      const line = document.createElement("div");
      const dot = document.createElement("i");
      dot.className = group.getAttribute("class");
      line.append(dot, `${one.name}: ${value === null || value === undefined ? "–" : show.format(value)}`);
      tip.append(line);
    }
    svg.parentNode.append(tip);
    const away = event.clientX - box.left;
    tip.style.left = `${Math.max(0, Math.min(away + 12, svg.parentNode.clientWidth - tip.offsetWidth))}px`;
    tip.style.top = `${Math.max(0, event.clientY - box.top - tip.offsetHeight - 10)}px`;
  };
  svg.addEventListener("pointermove", move);
  svg.addEventListener("pointerdown", move);
  svg.addEventListener("pointerleave", leave);
}

// A link into something folded opens it.
const unfold = () => {
  let one = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (; one; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
};
addEventListener("hashchange", unfold);
unfold();
addEventListener("beforeprint", () => { for (const one of document.querySelectorAll("details")) one.open = true; });
