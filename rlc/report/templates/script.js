"use strict";
// What is under the pointer (or chosen with the arrow keys), read from the table behind a chart.
// Listeners are those of the document, so that they hold for what `rlc watch` puts into the page.
{
  const chosen = new WeakMap();
  const show = (area, row) => {
    const [places, texts] = rlcAxes.stops(area.closest(".chart"));
    const at = Math.max(0, Math.min(places.length - 1, row(places)));
    chosen.set(area, at);
    const [hair, tip] = [area.querySelector(".hair"), area.querySelector(".tip")];
    tip.textContent = texts(at);
    hair.style.left = `${places[at]}%`;
    hair.style.display = tip.style.display = "block";
    const free = area.clientWidth - tip.offsetWidth;
    tip.style.left = `${Math.max(0, Math.min(free, (places[at] / 100) * area.clientWidth + 8))}px`;
  };
  const hide = (area) => {
    for (const part of area.querySelectorAll(".hair, .tip")) part.style.display = "none";
  };
  const on = (kind, act) => document.addEventListener(kind, (event) => {
    const area = event.target.closest?.(".chart .area");
    if (area) act(area, event);
  });
  on("pointermove", (area, event) => {
    const box = area.getBoundingClientRect(), at = (100 * (event.clientX - box.left)) / box.width;
    const away = (place) => Math.abs(place - at);
    show(area, (places) => places.reduce((b, p, i) => (away(p) < away(places[b]) ? i : b), 0));
  });
  on("pointerout", (area, event) => { if (!area.contains(event.relatedTarget)) hide(area); });
  on("focusout", hide);
  on("focusin", (area) => show(area, (places) => chosen.get(area) ?? places.length - 1));
  on("keydown", (area, event) => {
    if (event.key === "Escape") return hide(area);
    const move = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 }[event.key];
    if (!move) return;
    event.preventDefault();
    show(area, (places) => (chosen.get(area) ?? places.length - 1) + move);
  });
}
// The last steps, wider or narrower.
document.addEventListener("click", (event) => {
  const change = event.target.closest?.(".zoom button")?.dataset.zoom;
  if (!change) return;
  const gantt = document.querySelector(".gantt");
  const middle = (gantt.scrollLeft + gantt.clientWidth / 2) / gantt.scrollWidth;
  const now = Number(gantt.style.getPropertyValue("--zoom") || 1);
  gantt.style.setProperty("--zoom", Math.max(1, Math.min(64, now * change)));
  gantt.scrollLeft = middle * gantt.scrollWidth - gantt.clientWidth / 2;
});
