"use strict";
// What is under the pointer (or chosen with the arrow keys), read from the table behind a chart.
for (const figure of document.querySelectorAll(".chart")) {
  const area = figure.querySelector(".area");
  const table = figure.querySelector("table");
  const places = table.dataset.places.split(" ").map(Number);
  const names = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
  const hair = area.querySelector(".hair");
  const tip = area.querySelector(".tip");
  let chosen = places.length - 1;
  const show = (row) => {
    chosen = Math.max(0, Math.min(places.length - 1, row));
    const cells = [...table.tBodies[0].rows[chosen].cells].map((cell) => cell.textContent);
    tip.textContent = names.map((name, i) => `${name} ${cells[i]}`)
      .filter((_, i) => cells[i] !== "").join(" · ");
    hair.style.left = `${places[chosen]}%`;
    hair.style.display = tip.style.display = "block";
    const free = area.clientWidth - tip.offsetWidth;
    tip.style.left = `${Math.max(0, Math.min(free, (places[chosen] / 100) * area.clientWidth + 8))}px`;
  };
  const hide = () => { hair.style.display = tip.style.display = "none"; };
  area.addEventListener("pointermove", (event) => {
    const box = area.getBoundingClientRect();
    const at = (100 * (event.clientX - box.left)) / box.width;
    let best = 0;
    places.forEach((place, i) => {
      if (Math.abs(place - at) < Math.abs(places[best] - at)) best = i;
    });
    show(best);
  });
  area.addEventListener("pointerleave", hide);
  area.addEventListener("blur", hide);
  area.addEventListener("focus", () => show(chosen));
  area.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (move) { event.preventDefault(); show(chosen + move); }
  });
}
// The last steps, wider or narrower.
const gantt = document.querySelector(".gantt");
if (gantt) {
  let zoom = 1;
  const set = (next) => {
    const middle = (gantt.scrollLeft + gantt.clientWidth / 2) / gantt.scrollWidth;
    zoom = Math.max(1, Math.min(64, next));
    gantt.style.setProperty("--zoom", zoom);
    gantt.scrollLeft = middle * gantt.scrollWidth - gantt.clientWidth / 2;
  };
  document.getElementById("closer").addEventListener("click", () => set(zoom * 2));
  document.getElementById("farther").addEventListener("click", () => set(zoom / 2));
  document.getElementById("whole").addEventListener("click", () => set(1));
}
