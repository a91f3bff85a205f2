"use strict";
// Curves by time, tokens or dollars instead of steps: what was drawn by step is moved along the axis.
const rlcAxes = (() => {
  const moved = new WeakMap();  // of an element: what it was and what was put instead, by attribute
  const stopsOf = new Map();
  const root = document.documentElement;
  root.classList.add("scripted");
  const chosen = () => document.querySelector(".by input:checked")?.value ?? "step";

  const read = (node, name) => (name === "html" ? node.innerHTML : node.getAttribute(name));
  const write = (node, name, value) =>
    name === "html" ? (node.innerHTML = value) : node.setAttribute(name, value);
  // What rlc watch has put there since is the new original.
  const original = (node, name) => {
    const mine = moved.get(node)?.[name], now = read(node, name);
    return mine?.now === now ? mine.was : now;
  };
  const put = (node, name, change) => {
    const was = original(node, name);
    write(node, name, change === null ? was : change(was));
    moved.set(node, { ...moved.get(node), [name]: { was, now: read(node, name) } });
  };

  const between = (froms, tos, value) => {
    let i = froms.findIndex((from) => from >= value);
    if (i < 0) i = froms.length - 1;
    if (i === 0) return tos[0];
    const share = (value - froms[i - 1]) / (froms[i] - froms[i - 1]);
    return tos[i - 1] + Math.min(1, share) * (tos[i] - tos[i - 1]);
  };
  const TIMES = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];
  const width = (high, by) => {
    const rough = high / 5, power = 10 ** Math.floor(Math.log10(rough));
    if (by === "time" && rough > 0.5 && rough < 86400) return TIMES.find((size) => size >= rough);
    return [1, 2, 5, 10].map((f) => f * power).find((size) => size >= rough * 0.999);
  };
  const clock = (value) => {
    if (value < 60) return `${Number(value.toPrecision(3))} s`;
    const whole = Math.round(value), two = (n) => String(n % 60).padStart(2, "0");
    const hours = Math.floor(whole / 3600), minutes = Math.floor(whole / 60);
    return hours ? `${hours}:${two(minutes)}:${two(whole)}` : `${minutes}:${two(whole)}`;
  };
  const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
  const SHOWN = {
    time: clock,
    tokens: (value) => compact.format(value),
    dollars: (value) => `$${Number(value.toPrecision(3))}`,
  };

  const drawChart = (chart, axes, by) => {
    const [low, high] = chart.dataset.span.split(" ").map(Number);
    const stepAt = (share) => low + share * (high - low);
    const valueOf = (run) => {
      const mine = axes?.[run]?.[chart.dataset.by];
      return mine?.[by] && ((step) => between(mine.step, mine[by], step));
    };
    const rows = [...chart.querySelector("tbody").rows].map((row) =>
      [...row.cells].map((cell) => cell.textContent));
    const names = [...chart.querySelector("thead tr").cells].map((cell) => cell.textContent);
    // The points of each curve, by the axis.
    const curves = [...chart.querySelectorAll(".legend li")].map((item, i) => {
      const value = by === "step" ? null : valueOf(item.dataset.run);
      return { name: names[i + 1], points: !value ? [] : rows.filter((row) => row[i + 1] !== "")
        .map((row) => [value(Number(row[0].replaceAll(",", ""))), row[i + 1]]) };
    });
    const ends = curves.flatMap((curve) => curve.points.slice(-1).map(([x]) => x));
    const most = Math.max(0, ...ends), plain = !(most > 0);
    const place = (run, share) => {
      const value = valueOf(run);
      return value ? value(stepAt(share)) / most : NaN;
    };
    const change = (nodes, name, how) => {
      for (const node of nodes)
        put(node, name, plain ? null : (was) => how(was, (share) => place(node.dataset.run, share)));
    };
    change(chart.querySelectorAll(".area path"), "d", (was, to) => {
      const path = was.replace(/([ML])(\S+) /g, (_, kind, x) => {
        const at = 1000 * to(x / 1000);
        return `${kind}${at.toFixed(1)} `;
      });
      return path.includes("NaN") ? "" : path;
    });
    change(chart.querySelectorAll(".dot, .mark"), "style", (was, to) =>
      was.replace(/left:([^%]+)%/, (_, left) => {
        const at = 100 * to(left / 100);
        return Number.isNaN(at) ? "display:none" : `left:${at.toFixed(2)}%`;
      }));
    put(chart.querySelector(".xs"), "html", plain ? null : () => {
      const size = width(most, by), texts = [];
      for (let at = 0; at <= most * 1.0001; at += size) {
        const left = (100 * at) / most, side = left < 4 ? "first" : left > 96 ? "last" : "";
        texts.push(`<span class="${side}" style="left:${left.toFixed(2)}%">${SHOWN[by](at)}</span>`);
      }
      return texts.join("");
    });
    const label = ` by ${chart.dataset.name}: `;
    put(chart.querySelector(".area"), "aria-label", plain ? null : (was) =>
      was.replace(label, ` by ${by}: `));
    stopsOf.set(chart, plain ? null : stops(curves, most, by));
  };

  // Where the pointer can stop, and what there is: of each curve the last value until then.
  const stops = (curves, most, by) => {
    const values = [...new Set(curves.flatMap((curve) => curve.points.map(([x]) => x)))];
    values.sort((a, b) => a - b);
    const text = (at) => [`${by} ${SHOWN[by](values[at])}`, ...curves.flatMap(({ name, points }) => {
      const found = points.findLast(([x]) => x <= values[at]);
      return found && values[at] <= points.at(-1)[0] ? [`${name} ${found[1]}`] : [];
    })].join(" · ");
    return [values.map((value) => (100 * value) / most), text];
  };
  const byStep = (chart) => {
    const table = chart.querySelector("table");
    const texts = (cells) => [...cells].map((cell) => cell.textContent);
    const names = texts(table.tHead.rows[0].cells);
    const text = (at) => {
      const cells = texts(table.tBodies[0].rows[at].cells);
      return names.map((name, i) => `${name} ${cells[i]}`).filter((_, i) => cells[i]).join(" · ");
    };
    return [table.dataset.places.split(" ").map(Number), text];
  };

  const draw = () => {
    const written = document.getElementById("axes"), by = chosen();
    stopsOf.clear();
    if (!written) return;
    const axes = JSON.parse(written.textContent);
    for (const chart of document.querySelectorAll(".chart[data-by]")) drawChart(chart, axes, by);
  };
  document.addEventListener("change", (event) => {
    if (event.target.closest?.(".by")) draw();
  });
  draw();  // a browser that goes back remembers what was chosen
  return { draw, stops: (chart) => stopsOf.get(chart) ?? byStep(chart) };
})();
