// What the page does beyond showing: sorts tables, draws curves, changes between light and dark. Without it everything
// but the curves is still there.
"use strict";
(() => {
  const root = document.documentElement;
  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  // Tables: the first activation of a heading sorts upwards, the second downwards, the third restores the order.
  const keyOf = (cell) => {
    const text = cell.textContent.trim();
    if (text === "" || text === "-") return null;
    const key = Number(cell.dataset.k ?? text.replaceAll(",", ""));
    return Number.isNaN(key) ? text : key;
  };
  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number" ? a - b
      : String(a).localeCompare(String(b), "en", { numeric: true });
  const NEXT = { none: "ascending", ascending: "descending", descending: "none" };

  function sortable(table) {
    const body = table.tBodies[0];
    const original = [...body.rows];
    table.tHead.addEventListener("click", (event) => {
      const heading = event.target.closest("button")?.parentElement;
      if (!heading) return;
      const order = NEXT[heading.getAttribute("aria-sort") ?? "none"];
      for (const other of heading.parentElement.cells) other.setAttribute("aria-sort", "none");
      heading.setAttribute("aria-sort", order);
      table.classList.toggle("sorted", order !== "none");
      const sign = order === "descending" ? -1 : 1;
      const keyed = original.map((row) => [keyOf(row.cells[heading.cellIndex]), row]);
      if (order !== "none") {
        // What is missing stays last, whichever way.
        keyed.sort(([a], [b]) => (a === null) - (b === null) || (a === null ? 0 : sign * compare(a, b)));
      }
      body.replaceChildren(...keyed.map(([, row]) => row));
    });
  }

  // Curves.
  const DASHES = [[], [8, 4], [2, 3], [8, 3, 2, 3]];
  const HEIGHT = 280;
  const charts = [];

  const short = (value) => {
    const size = Math.abs(value);
    if (size >= 1e9) return `${+(value / 1e9).toPrecision(4)}G`;
    if (size >= 1e6) return `${+(value / 1e6).toPrecision(4)}M`;
    if (size >= 1e4) return `${+(value / 1e3).toPrecision(4)}k`;
    return `${+value.toPrecision(4)}`;
  };
  const exact = (value) => (value == null ? "-" : value.toLocaleString("en", { maximumSignificantDigits: 6 }));

  function options(data, width) {
    const axis = (label) => ({
      label, labelSize: 20, stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 },
      ticks: { stroke: colour("--line"), width: 1 }, font: "12px system-ui, sans-serif",
      labelFont: "12px system-ui, sans-serif", values: (_, splits) => splits.map((v) => (v == null ? "" : short(v))),
    });
    const series = data.curves.map((curve, i) => ({
      label: curve.name, stroke: colour(`--c${i % 8}`), width: 2, dash: DASHES[Math.floor(i / 2) % DASHES.length],
      spanGaps: true, points: { show: false }, value: (_, v) => exact(v),
      paths: data.steps ? uPlot.paths.stepped({ align: 1 }) : undefined,
    }));
    return {
      width, height: HEIGHT, scales: { x: { time: false }, y: { range: (_, low, high) => bounds(low, high) } },
      axes: [axis(data.across), { ...axis(data.up), size: 62 }],
      series: [{ label: "at", value: (_, v) => exact(v) }, ...series], cursor: { y: false },
    };
  }

  // The scale begins at zero: what shrinks to half must look like half.
  function bounds(low, high) {
    if (low == null) return [0, 1];
    return uPlot.rangeNum(Math.min(low, 0), high > low ? high : low + 1, 0.08, true).map((v, i) => (i ? v : Math.min(low, 0)));
  }

  function draw(place) {
    place.querySelector(".uplot")?.remove();
    const data = JSON.parse(place.querySelector("script").textContent);
    const width = Math.max(place.clientWidth, 200);
    const chart = new uPlot(options(data, width), [data.x, ...data.curves.map((curve) => curve.y)], place);
    const legend = chart.root.querySelector(".u-legend");
    legend.setAttribute("aria-live", "polite");
    legend.querySelectorAll(".u-series").forEach((entry, i) => {
      if (i === 0) return;
      const name = entry.querySelector("th");
      name.tabIndex = 0;
      name.setAttribute("role", "button");
      name.title = "Show or hide this curve";
      name.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        event.stopPropagation();
        chart.setSeries(i, { show: !chart.series[i].show });
      });
    });
    place.dataset.drawn = "yes";
    return chart;
  }

  function curves(place) {
    const entry = { place, chart: draw(place) };
    charts.push(entry);
    let at = -1;
    place.addEventListener("keydown", (event) => {
      const x = entry.chart.data[0];
      const last = x.length - 1;
      const to = { ArrowRight: Math.min(at + 1, last), ArrowLeft: Math.max(at - 1, 0), Home: 0, End: last }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      at = to;
      entry.chart.setCursor({ left: entry.chart.valToPos(x[at], "x"), top: 10 });
    });
    new ResizeObserver(() => {
      const width = place.clientWidth;
      if (width >= 200 && Math.abs(width - entry.chart.width) > 1) entry.chart.setSize({ width, height: HEIGHT });
    }).observe(place);
  }

  const redraw = () => charts.forEach((entry) => { entry.chart.destroy(); entry.chart = draw(entry.place); });

  // Light and dark.
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const button = document.getElementById("theme");
  const name = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  button.hidden = false;
  button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; name(); redraw(); });
  dark.addEventListener("change", () => { name(); redraw(); });

  // Paper is light and narrow, and two charts fit on a page.
  const PAPER = { width: 680, height: 200 };
  let before;
  addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    root.dataset.theme = "light";
    redraw();
    for (const { chart } of charts) chart.setSize({ ...PAPER, width: Math.min(chart.width, PAPER.width) });
  });
  addEventListener("afterprint", () => {
    if (before) root.dataset.theme = before; else delete root.dataset.theme;
    redraw();
  });

  name();
  document.querySelectorAll("table.sortable").forEach(sortable);
  document.querySelectorAll(".curves").forEach(curves);
})();
