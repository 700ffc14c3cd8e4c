"use strict";
// Keeps the page up to date: pieces of it arrive as server-sent events and take the place of older ones.
const state = document.getElementById("live");
const tell = (kind, text) => { state.className = "soft " + kind; state.textContent = text; };
const within = (root, what) => [...(root.matches(what) ? [root] : []), ...root.querySelectorAll(what)];
const atEnd = (box) => box.scrollHeight - box.scrollTop - box.clientHeight < 24;

// What the reader did with the old one holds for the new one: what is open, zoomed, enlarged, scrolled to.
const carry = (old, fresh) => {
  const open = new Set(within(old, "details[open]").map((one) => one.id));
  for (const one of within(fresh, "details")) one.open = open.has(one.id);
  const figures = new Map(within(old, "figure").map((one) => [one.dataset.name, one]));
  const scrolled = within(old, ".scroll, .pan, .turns").map((box) => [box.scrollLeft, box.scrollTop, atEnd(box)]);
  const focus = within(old, "[tabindex], button, summary").indexOf(document.activeElement);
  return () => {
    for (const figure of within(fresh, "figure")) {
      const before = figures.get(figure.dataset.name);
      if (!before) continue;
      figure.classList.toggle("wide", before.classList.contains("wide"));
      const [was, is] = [before, figure].map((one) => one.querySelector("svg[data-plot]"));
      if (was && is && (plot(was).range || plot(was).log)) zoom(is, plot(was).range, plot(was).log);
      const [mapWas, mapIs] = [before, figure].map((one) => one.querySelector(".pan svg"));
      if (mapWas && mapIs && mapWas.dataset.whole === mapIs.getAttribute("viewBox")) {
        whole(mapIs);
        mapIs.setAttribute("viewBox", mapWas.getAttribute("viewBox"));
      }
    }
    within(fresh, ".scroll, .pan, .turns").forEach((box, number) => {
      const [left, top, end] = scrolled[number] || [0, 0, true];
      box.scrollTo(left, end && box.matches(".follow") ? box.scrollHeight : top);
    });
    if (focus >= 0) within(fresh, "[tabindex], button, summary")[focus]?.focus({ preventScroll: true });
  };
};
const swap = (old, fresh) => {
  const after = carry(old, fresh);
  equip(fresh);
  choose(fresh);
  old.replaceWith(fresh);
  after();
};

// A transcript that is scrolled up stays where it is until its end is in sight again; pointing and dragging are not disturbed.
const waiting = new Map();
const busy = (old) => (old.matches(".follow") && !atEnd(old)) || (drag && old.contains(drag.svg)) || (held && old.contains(held.svg)) || old.contains(tip);
const settle = () => {
  for (const [name, html] of waiting) {
    const old = document.querySelector(`[data-piece="${CSS.escape(name)}"]`);
    if (old && busy(old)) continue;
    waiting.delete(name);
    const template = document.createElement("template");
    template.innerHTML = html;
    if (old) swap(old, template.content.firstElementChild);
  }
};
document.addEventListener("scroll", settle, true);
setInterval(settle, 500);

const again = async () => {
  const answer = await fetch(location.pathname + location.search, { cache: "no-store" });
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  waiting.clear();
  leave();
  const off = new Set([...document.querySelectorAll("nav input:not(:checked)")].map((box) => box.value));
  for (const box of fresh.querySelectorAll("nav input")) box.checked = !off.has(box.value);
  for (const part of ["header", "nav"]) document.querySelector(part).replaceWith(fresh.querySelector(part));
  const [main, other] = [document.querySelector("main"), fresh.querySelector("main")];
  state.dataset.version = other.querySelector("#live").dataset.version;
  other.querySelector("#live").replaceWith(state.cloneNode());
  const top = scrollY, after = carry(main, other);
  other.querySelector("#live").replaceWith(state);
  main.replaceWith(other);
  equip(other);
  choose(other);
  after();
  scrollTo(0, top);
};

// A hidden tab needs no connection; a browser has only six.
let source = null;
const connect = () => {
  source = new EventSource("/events?since=" + encodeURIComponent(state.dataset.version));
  source.onopen = () => tell("on", "live");
  source.onerror = () => {
    tell("off", "no connection; trying again");
    if (source?.readyState === EventSource.CLOSED) setTimeout(() => { if (!document.hidden) connect(); }, 3000);
  };
  source.addEventListener("pieces", (event) => {
    state.dataset.version = event.lastEventId;
    for (const [name, html] of Object.entries(JSON.parse(event.data))) waiting.set(name, html);
    settle();
  });
  source.addEventListener("again", () => { again().catch(() => tell("off", "no connection; trying again")); });
};
const visible = () => {
  source?.close();
  source = null;
  if (!document.hidden) connect();
};
document.addEventListener("visibilitychange", visible);
addEventListener("pagehide", () => source?.close());
visible();
for (const box of document.querySelectorAll(".follow")) box.scrollTo(0, box.scrollHeight);
