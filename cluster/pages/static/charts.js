// Draws the charts of the live page and of the report from the JSON beside each canvas. Everything else is Chart.js.
"use strict";
const Charts = (() => {
  const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3], [4, 4], [1, 2]];
  const SHAPES = ["circle", "rectRot", "triangle", "rect", "star", "crossRot"];
  const drawn = new Map();

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const paint = (index) => color(`--line-${index % 6}`);
  const thin = (value, digits) => String(Number(value.toPrecision(digits)));

  function short(value) {
    for (const [size, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
      if (Math.abs(value) >= size) return `${thin(value / size, 3)} ${letter}`;
    }
    return thin(value, 3);
  }
  function duration(seconds) {
    if (seconds === 0) return "0";
    if (Math.abs(seconds) < 1) return `${thin(seconds * 1000, 3)} ms`;
    if (seconds < 120) return `${thin(seconds, 3)} s`;
    if (seconds < 7200) return `${thin(seconds / 60, 3)} min`;
    return `${thin(seconds / 3600, 3)} h`;
  }
  const STEPS = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400];
  function evenSteps(longest) {
    return longest < 4 ? undefined : STEPS.find((step) => longest / step <= 6) ?? 86400 * Math.ceil(longest / 86400 / 6);
  }
  const multiples = (step, end) => Array.from({ length: Math.floor(end / step) + 1 }, (_, at) => ({ value: at * step }));
  function written(value, unit) {
    if (value === null || value === undefined) return "–";
    switch (unit) {
      case "seconds": return duration(value);
      case "ratio": return `${thin(value * 100, 3)} %`;
      case "pi": return thin(value, 8);
      case "error": return value.toExponential(0).replace("e", " e");
      default: return short(value);
    }
  }

  function datasets(spec) {
    const made = [];
    for (const series of spec.series) {
      if (!series.points.length) continue;
      const line = paint(series.color);
      const base = { label: series.name, borderColor: line, backgroundColor: line, borderWidth: 2, pointRadius: 0, pointHitRadius: 8, clip: 6 };
      if (spec.kind === "spans") {
        made.push({ ...base, borderWidth: 0, barPercentage: 0.72, categoryPercentage: 1, grouped: false, minBarLength: 2,
          data: series.points.map(([at, begin, end]) => ({ x: [begin, end], y: spec.labels[at] })) });
      } else if (spec.kind === "bars") {
        const values = spec.labels.map(() => null);
        for (const [at, value] of series.points) values[at] = value;
        made.push({ ...base, borderWidth: 0, borderRadius: 3, maxBarThickness: 34, data: values });
      } else if (series.look === "band") {
        const shade = `color-mix(in srgb, ${line} 22%, transparent)`;
        const edge = { ...base, borderWidth: 1, borderColor: `color-mix(in srgb, ${line} 55%, transparent)`, pointHitRadius: 0 };
        made.push({ ...edge, backgroundColor: shade, data: series.points.map(([x, low]) => ({ x, y: low })), fill: "+1" });
        made.push({ ...edge, label: "", data: series.points.map(([x, , high]) => ({ x, y: high })), fill: false });
      } else {
        const lone = (series.look === "points" && series.points.length <= 24) || series.points.length < 3;
        made.push({ ...base, data: series.points.map(([x, y]) => ({ x, y })), borderDash: DASHES[series.color % 6],
          pointStyle: SHAPES[series.color % 6], pointRadius: lone ? 4 : 0,
          ...(series.look === "reference" ? { borderDash: [8, 5], borderWidth: 1.5, pointRadius: 0 } : {}) });
      }
    }
    return made;
  }

  function axis(label, unit, spec, numeric) {
    const text = color("--soft");
    return {
      type: numeric ? (spec.logarithmic ? "logarithmic" : "linear") : "category",
      title: { display: Boolean(label), text: label, color: text },
      grid: { color: color("--grid") },
      border: { color: color("--edge") },
      ticks: { color: text, maxRotation: 0, ...(unit === "epoch" ? { precision: 0 } : {}), autoSkip: true, autoSkipPadding: 14, maxTicksLimit: numeric ? 7 : 30,
        ...(numeric ? { callback: (value) => (spec.logarithmic && !/^[125]e/.test(value.toExponential()) ? null : written(value, unit)) } : {}) },
    };
  }

  function options(spec) {
    const bars = spec.kind !== "lines";
    const across = spec.horizontal;
    const value = axis(spec.kind === "spans" ? spec.x_label : spec.y_label, spec.kind === "spans" ? spec.x_unit : spec.y_unit, spec, true);
    if (spec.from_zero || bars) value.beginAtZero = true;
    if (spec.y_range) {
      [value.min, value.max] = spec.y_range;
      value.ticks.includeBounds = false;
    }
    const place = bars ? axis(spec.kind === "spans" ? "" : spec.x_label, spec.x_unit, spec, false) : axis(spec.x_label, spec.x_unit, spec, true);
    const timed = spec.kind === "spans" ? value : place;
    if (spec.x_unit === "seconds" && spec.kind !== "bars") {
      const ends = spec.series.flatMap((series) => series.points.map((point) => point[spec.kind === "spans" ? 2 : 0]));
      const longest = Math.max(...ends);
      Object.assign(timed, { min: 0, max: longest });
      const step = evenSteps(longest);
      // A step that nearly divides the end is stretched by the library: 59.3 s instead of 60.
      if (step) timed.afterBuildTicks = (scale) => { scale.ticks = multiples(step, longest); };
      timed.ticks.includeBounds = false;
    }
    if (bars) {
      place.grid = { display: false };
      place.ticks.autoSkip = !across && spec.labels.length > 8;
      if (across) place.title.display = false;
      if (spec.kind === "spans") place.labels = spec.labels;
    } else if (!spec.logarithmic) {
      place.min = 0;
      place.max = Math.max(...spec.series.flatMap((series) => series.points.map((point) => point[0])));
      place.ticks.includeBounds = false;
    }
    const named = spec.series.filter((series) => series.points.length).length > 1 || spec.kind === "spans";
    return {
      animation: false, responsive: true, maintainAspectRatio: false, normalized: false,
      indexAxis: across ? "y" : "x",
      interaction: bars ? { mode: "nearest", intersect: true } : { mode: "nearest", axis: "x", intersect: false },
      scales: across ? { x: value, y: place } : { x: place, y: value },
      plugins: {
        legend: { display: named, position: "bottom", onClick: null,
          labels: { color: color("--text"), usePointStyle: !bars, pointStyleWidth: 26, boxHeight: bars ? 10 : 7, boxWidth: 18, filter: (item) => item.text !== "",
            ...(bars ? {} : { generateLabels }) } },
        tooltip: { callbacks: { title: () => "", label: (item) => told(item, spec) }, filter: (item) => item.dataset.label !== "" },
      },
    };
  }

  function generateLabels(chart) {
    return Chart.defaults.plugins.legend.labels.generateLabels(chart).map((item) => {
      const set = chart.data.datasets[item.datasetIndex];
      const band = set.fill === "+1";
      return { ...item, pointStyle: band ? "rect" : "line", lineDash: set.borderDash || [],
        fillStyle: set.backgroundColor, strokeStyle: set.borderColor, lineWidth: 2 };
    });
  }

  function told(item, spec) {
    const { dataset, raw } = item;
    if (spec.kind === "spans") return `${raw.y}: ${dataset.label}, ${duration(raw.x[0])} to ${duration(raw.x[1])}`;
    if (spec.kind === "bars") return `${item.label}: ${written(raw, spec.y_unit)}`;
    return `${dataset.label}: ${written(raw.y, spec.y_unit)} at ${written(raw.x, spec.x_unit)}`;
  }

  function fillTable(figure, table) {
    const body = figure.querySelector("tbody");
    const head = figure.querySelector("thead");
    if (!body || !head) return;
    const cell = (tag, text, scope) => {
      const made = document.createElement(tag);
      made.textContent = text;
      if (scope) made.scope = scope;
      return made;
    };
    const row = (cells) => {
      const made = document.createElement("tr");
      made.append(...cells);
      return made;
    };
    head.replaceChildren(row(table.heads.map((text) => cell("th", text, "col"))));
    body.replaceChildren(...table.rows.map((cells) => row(cells.map((text, at) => (at ? cell("td", text) : cell("th", text, "row"))))));
  }

  function draw(figure, spec) {
    const canvas = figure.querySelector("canvas");
    if (!canvas) return;
    const sets = datasets(spec);
    const empty = !spec.series.some((series) => series.points.length && series.look !== "reference");
    figure.querySelector(".empty").hidden = !empty;
    figure.querySelector(".canvas").hidden = empty;
    const numbers = figure.querySelector("details.numbers");
    numbers.hidden = empty;
    canvas.setAttribute("aria-label", spec.summary);
    const known = drawn.get(figure);
    if (empty) {
      if (known) { known.chart.destroy(); drawn.delete(figure); }
      return;
    }
    if (spec.kind === "spans") figure.querySelector(".canvas").className = `canvas rows-${Math.min(spec.labels.length, 24)}`;
    if (numbers.open || !known) fillTable(figure, spec.table);
    if (known) {
      known.spec = spec;
      Object.assign(known.chart.options, options(spec));
      known.chart.data = data(spec, sets);
      known.chart.update("none");
    } else {
      const made = { spec, chart: new Chart(canvas, { type: spec.kind === "lines" ? "line" : "bar", data: data(spec, sets), options: options(spec) }) };
      drawn.set(figure, made);
      numbers.addEventListener("toggle", () => { if (numbers.open && drawn.has(figure)) fillTable(figure, drawn.get(figure).spec.table); });
    }
  }

  const data = (spec, sets) => (spec.kind === "lines" ? { datasets: sets } : { labels: spec.labels, datasets: sets });

  function all() {
    Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
    for (const figure of document.querySelectorAll("figure.chart")) {
      const source = figure.querySelector("script[type='application/json']");
      if (source) draw(figure, JSON.parse(source.textContent));
    }
    const again = () => { for (const [figure, { spec }] of drawn) draw(figure, spec); };
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
    matchMedia("print").addEventListener("change", again);
  }

  return { all, draw };
})();
document.addEventListener("DOMContentLoaded", Charts.all);
