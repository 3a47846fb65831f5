// Two runs beside each other: what they were given, what they came to, and how far their losses are apart.

/** Return the two runs that are compared, by choice or the first two. */
function comparedRuns() {
  const named = (name) => data.runs.find((run) => nameOf(run) === name);
  const first = named(view.compared[0]) ?? data.runs[0];
  return [first, named(view.compared[1]) ?? data.runs.find((run) => run !== first)];
}

function compareWith(number, name) {
  const names = comparedRuns().map(nameOf);
  names[number] = name;
  view.compared = names;
  drawDifferences();
}

function drawDifferences() {
  const place = document.getElementById("differences");
  place.hidden = data.runs.length < 2;
  document.querySelector('nav a[href="#differences"]').hidden = place.hidden;
  if (place.hidden) {
    return;
  }
  const pair = comparedRuns();
  ["first-run", "second-run"].forEach((id, number) => {
    const options = data.runs.map((run) => make("option", { value: nameOf(run), selected: run === pair[number] }, nameOf(run)));
    document.getElementById(id).replaceChildren(...options);
  });
  const rows = comparedRows(pair).map(([name, a, b, write]) => {
    const line = make("tr", { className: a === b ? "same" : "" }, make("th", { scope: "row" }, name),
      make("td", {}, write(a)), make("td", {}, write(b)), make("td", {}, differenceOf(a, b)));
    return line;
  });
  const heads = [make("th", { scope: "col" }, "What"), ...pair.map((run) => make("th", { scope: "col" }, swatch(run), " ", make("bdi", {}, nameOf(run)))),
    make("th", { scope: "col" }, "Difference")];
  document.getElementById("difference-table").replaceChildren(make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows));
  drawDistance(pair);
}

/** Return name, two values and how they are written, of all settings and results of two runs. */
function comparedRows(pair) {
  const of = (name, value, write = written) => [name, value(pair[0]), value(pair[1]), write];
  const settings = [...new Set(pair.flatMap((run) => Object.keys(run.settings)))];
  const metrics = [...new Set(pair.flatMap((run) => Object.keys(run.evaluations)))].filter((name) => name !== "step");
  const time = (seconds) => (seconds === null ? said(null) : clock(seconds));
  return [
    ...settings.map((name) => of(name, (run) => settingOf(run, name))),
    of("state", stateOf), of("steps", (run) => run.step), of("time", (run) => last(run.curves.seconds), time),
    of("loss", (run) => last(run.curves.loss)), of("least loss", (run) => least(run.curves.loss)),
    ...metrics.map((name) => of(name.replace(/^eval_(.*)/, "$1 in evaluation"), (run) => (Object.hasOwn(run.evaluations, name) ? last(run.evaluations[name]) : null))),
    of("skipped steps", skippedOf), of("examples a second", (run) => mean(run.curves.throughput)),
  ].filter(([, a, b]) => a !== null || b !== null);
}

function least(column) {
  const values = known(column);
  return values.length ? Math.min(...values) : null;
}

function mean(column) {
  const values = known(column);
  return values.length ? values.reduce((sum, number) => sum + number, 0) / values.length : null;
}

/** Return how far the second of two values is from the first. */
function differenceOf(a, b) {
  if (typeof a !== "number" || typeof b !== "number") {
    return a === b ? "" : "differs";
  }
  if (a === b) {
    return "";
  }
  const sign = b > a ? "+" : "\u2212", times = b / a;
  const share = times > 0 && times < 10 ? ` (${sign}${Number(Math.abs(100 * (times - 1)).toPrecision(3))} %)` : "";
  return `${sign}${said(Math.abs(b - a))}${share}`;
}

/** Draw by how much the loss of the second run is above that of the first, where both have one. */
function drawDistance(pair) {
  const place = document.getElementById("difference-chart");
  removePlots(place);
  const [a, b] = pair.map((run) => ({ places: placesOf(run, run.curves.step), loss: smoothed(run.curves.loss, view.smooth) }));
  const end = Math.min(a.places.at(-1) ?? -1, b.places.at(-1) ?? -1);
  const places = [...new Set([...a.places, ...b.places])].sort((x, y) => x - y).filter((at) => at <= end);
  const at = (run, x) => run.loss[rowAt(run.places, run.loss, x)] ?? null;
  const columns = [places, places.map((x) => (at(a, x) === null || at(b, x) === null ? null : at(b, x) - at(a, x)))];
  if (!known(columns[1]).length) {
    return;
  }
  const [first, second] = pair.map(nameOf), number = make("b");
  const tell = (x) => { number.textContent = said(columns[1][rowAt(places, columns[1], x ?? Infinity)] ?? null); };
  tell(view.cursor);
  const horizontal = view.axis === "time" ? axisNamed("time since the beginning", clock, { incrs: CLOCK_STEPS, size: 28 })
    : axisNamed("step", brief, { incrs: WHOLE_STEPS, size: 28 });
  const element = plotOf(`The loss of ${second} minus that of ${first}: at last ${number.textContent}`, {
    height: HEIGHT,
    scales: { x: { time: false, range: () => view.range ?? wholeRange() }, y: { range: (_, low, high) => roomy(Math.min(0, low), Math.max(0, high)) } },
    axes: [horizontal, sideAxis("difference of the losses", brief)],
    series: [{}, { stroke: () => colorNamed(colorOf(pair[1])), width: 1.4, points: { show: false } }],
    padding: [8, 14, 0, 0],
    cursor: { sync: { key: "runs", setSeries: false }, y: false, drag: { x: false, y: false }, bind: { dblclick: () => () => zoomTo(null) } },
    hooks: { setCursor: [(plot) => tell(readAt(plot))] },
  }, columns);
  place.append(make("figure", { tell }, make("figcaption", {}, "Loss: ", make("bdi", {}, second), " minus ", make("bdi", {}, first), " ", number), element));
}
