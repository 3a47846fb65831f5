// One picture for each quantity, with the curves of all runs that are shown.

const HEIGHT = 250;

/** Return the pictures: title, what the scale is called, its base (0 is linear), and what of a run it shows. */
function pictures() {
  const of = (column) => (run) => [{ kind: "training", steps: run.curves.step, column: run.curves[column] }];
  const evaluated = (name) => (run) =>
    (Object.hasOwn(run.evaluations, name) ? [{ kind: "evaluation", steps: run.evaluations.step, column: run.evaluations[name] }] : []);
  const metrics = new Set(data.runs.flatMap((run) => Object.keys(run.evaluations)));
  metrics.delete("step");
  metrics.delete("eval_loss");
  const log = view.log ? 10 : 0;
  return [
    { title: "Loss: line in training, dots in evaluation", short: "loss", base: log, skips: true,
      of: (run) => [...of("loss")(run), ...evaluated("eval_loss")(run)] },
    ...[...metrics].sort().map((name) => ({ title: `${name.replace(/^eval_/, "")} in evaluation`,
      short: name.replace(/^eval_/, ""), base: log, of: evaluated(name) })),
    { title: "Loss scale", short: "loss scale", base: 2, skips: true, stepped: true, of: of("loss_scale") },
    { title: "Learning rate", short: "learning rate", base: log, stepped: true, of: of("learning_rate") },
    { title: "Norm of the gradients before clipping", short: "norm", base: 10, of: of("gradient_norm") },
    { title: "Examples a second", short: "examples a second", base: log, zero: true, of: of("throughput") },
    { title: "Share of the gradients' elements that are subnormal", short: "share", base: log, zero: true, share: true, of: of("small") },
    { title: "Share of the gradients' elements that are zero", short: "share", base: log, zero: true, share: true, of: of("zero") },
  ];
}

function known(column) {
  return column.filter((number) => number !== null);
}

/** Return the curves of a picture that have numbers, with the runs they are of. */
function curvesOf(picture) {
  return shownRuns().flatMap((run) => picture.of(run).map((curve) => ({ run, ...curve, places: placesOf(run, curve.steps) })))
    .filter((curve) => known(curve.column).length);
}

function lastStep() {
  return Math.max(0, ...data.runs.map((run) => run.step));
}

function drawCurves() {
  const place = document.getElementById("charts"), drawn = [];
  let skips = false;
  for (const picture of pictures()) {
    const curves = curvesOf(picture);
    if (curves.length) {
      drawn.push(figureOf(picture, curves));
      skips ||= Boolean(picture.skips) && curves.some(({ run }) => skipsOf(run).length);
    }
  }
  removePlots(place);
  place.append(...drawn);
  document.getElementById("no-curves").hidden = drawn.length > 0;
  document.getElementById("marks").hidden = !skips;
}

function figureOf(picture, curves) {
  const list = make("ul", { className: "values" });
  const written = curves.map((curve) => {
    const number = make("b"), other = curves.findIndex(({ run }) => run === curve.run);
    if (curves[other] === curve) {
      list.append(make("li", {}, swatch(curve.run, curve.kind === "evaluation"), make("bdi", {}, nameOf(curve.run)), " ", number));
    } else {
      list.children[[...new Set(curves.map(({ run }) => run))].indexOf(curve.run)].append(" evaluation ", number);
    }
    return number;
  });
  const tell = (at) => curves.forEach((curve, number) => {
    const row = rowAt(curve.places, curve.column, at ?? Infinity);
    written[number].textContent = writtenIn(picture, row < 0 ? null : curve.column[row]);
  });
  tell(view.cursor);
  const element = make("figure", { tell }, make("figcaption", {}, picture.title), drawingOf(picture, curves, tell), list);
  return element;
}

function writtenIn(picture, number) {
  return picture.share ? percent(number) : said(number);
}

/** Return a sample of a run's line. */
function swatch(run, dots = false) {
  const mark = dots ? shape("circle", { class: "point", cx: 18, cy: 6, r: 4 })
    : shape("line", { class: "line", x1: 1, x2: 35, y1: 6, y2: 6, "stroke-dasharray": dashOf(run) });
  return shape("svg", { class: `swatch ${colorOf(run)}`, viewBox: "0 0 36 12", "aria-hidden": "true" }, mark);
}

/** Return a sentence that says what a picture shows. */
function sentenceOf(picture, curves) {
  const spoken = curves.map(({ run, column, kind }) => {
    const values = known(column);
    return `${nameOf(run)}${kind === "evaluation" ? " in evaluation" : ""}: from ${writtenIn(picture, values[0])} to ${writtenIn(picture, values.at(-1))}`;
  });
  const skipped = picture.skips ? [...new Set(curves.map(({ run }) => run))].filter((run) => skipsOf(run).length)
    .map((run) => `; ${nameOf(run)} skipped ${skipsOf(run).map(([step, count]) => `${count} up to step ${step}`).slice(0, 12).join(", ")}`) : [];
  return `${picture.title}, over ${lastStep()} steps; ${spoken.join("; ")}${skipped.join("")}`;
}

/** Return where a run skipped steps, and how many. */
function skipsOf(run) {
  return run.curves.step.map((step, row) => [step, run.curves.skipped[row]]).filter(([, count]) => count);
}

/** Return the lines of a curve: what was measured, and in front of it what is left when it is smoothed. */
function linesOf(picture, curve) {
  const positive = (number) => (picture.base && number !== null && number <= 0 ? null : number);
  const column = curve.column.map(positive), color = colorOf(curve.run), dash = dashOf(curve.run);
  const dots = curve.kind === "evaluation";
  const line = {
    stroke: () => colorNamed(color), width: dots ? 1 : 1.6,
    dash: dash ? dash.split(" ").map(Number) : undefined,
    points: { show: dots || column.filter((number) => number !== null).length === 1, size: 6, fill: () => colorNamed(color) },
    ...(dots ? { spanGaps: true } : {}),
    ...(picture.stepped ? { paths: uPlot.paths.stepped({ align: -1 }) } : {}),
  };
  if (!view.smooth || dots || picture.stepped) {
    return [{ ...line, xs: curve.places, ys: column }];
  }
  return [
    { ...line, alpha: 0.25, width: 1, dash: undefined, xs: curve.places, ys: column },
    { ...line, xs: curve.places, ys: smoothed(column, view.smooth) },
  ];
}

/** Return the exponential moving mean of a column, without the pull of its beginning. */
function smoothed(column, weight) {
  let mean = 0, share = 0;
  return column.map((number) => {
    if (number === null) {
      return null;
    }
    mean = weight * mean + (1 - weight) * number;
    share = weight * share + (1 - weight);
    return mean / share;
  });
}

/** Return the whole range of the horizontal scale. */
function wholeRange() {
  const runs = data.runs.filter((run) => run.curves.step.length);
  const ends = view.axis === "time" ? runs.map((run) => run.curves.seconds.at(-1)) : [lastStep()];
  return [0, Math.max(view.axis === "time" ? 0.001 : 1, ...ends)];
}

function drawingOf(picture, curves, tell) {
  const lines = curves.flatMap((curve) => linesOf(picture, curve));
  const columns = uPlot.join(lines.map(({ xs, ys }) => [xs, ys]), lines.map(({ spanGaps }) => [0, spanGaps ? 0 : 1]));
  const write = picture.share ? percent : brief;
  const y = picture.base ? logarithmic(picture.base)
    : { range: (_, least, most) => roomy(picture.zero ? Math.min(0, least) : least, most) };
  const horizontal = view.axis === "time"
    ? axisNamed("time since the beginning", clock, { incrs: CLOCK_STEPS, size: 28 }) : axisNamed("step", brief, { incrs: WHOLE_STEPS, size: 28 });
  const element = plotOf(sentenceOf(picture, curves), {
    height: HEIGHT,
    scales: { x: { time: false, range: () => view.range ?? wholeRange() }, y },
    axes: [horizontal, sideAxis(picture.short, write, picture.base === 2 ? { values: powersOfTwo } : {})],
    series: [{}, ...lines.map(({ xs, ys, ...line }) => line)],
    padding: [8, 14, 0, 0],
    cursor: { sync: { key: "runs", setSeries: false }, drag: { x: true, y: false, setScale: false }, y: false,
      bind: { dblclick: () => () => zoomTo(null) } },
    hooks: {
      setCursor: [(plot) => tell(readAt(plot))],
      setSelect: [(plot) => {
        const { left, width } = plot.select;
        if (width > 3) {
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          zoomTo([plot.posToVal(left, "x"), plot.posToVal(left + width, "x")]);
        }
      }],
      draw: [(plot) => drawMarks(plot, picture, curves)],
    },
  }, columns);
  element.addEventListener("drawn", () => onPlotClick(element.plot, moveCursor));
  return element;
}

/** Return where the pictures are read: where the pointer is, else where the reader has clicked. */
function readAt(plot) {
  const at = pointed(plot);
  return at === null ? view.cursor : view.axis === "time" ? at : Math.round(at);
}

/** Return a range with room above and below. */
function roomy(least, most) {
  if (least === null || most === null) {
    return [0, 1];
  }
  const room = (most - least) * 0.06 || Math.abs(most) / 10 || 1;
  return [least === 0 ? 0 : least - room, most + room];
}

function powersOfTwo(_, splits) {
  const few = Math.ceil(splits.filter((at) => at !== null).length / 7);
  return splits.map((at, place) => (at === null || place % few ? "" : brief(at)));
}

/** Draw where the cursor stands, and a triangle for each point with steps that were skipped. */
function drawMarks(plot, picture, curves) {
  const { ctx, bbox } = plot, floor = bbox.top + bbox.height, size = 5 * devicePixelRatio;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  for (const run of picture.skips ? new Set(curves.map((curve) => curve.run)) : []) {
    ctx.fillStyle = colorNamed(colorOf(run));
    const skips = skipsOf(run).map(([step]) => step);
    for (const place of placesOf(run, skips)) {
      const x = plot.valToPos(place, "x", true);
      ctx.beginPath();
      ctx.moveTo(x, floor - 1.8 * size);
      ctx.lineTo(x + size, floor);
      ctx.lineTo(x - size, floor);
      ctx.fill();
    }
  }
  if (view.cursor !== null) {
    const x = plot.valToPos(view.cursor, "x", true);
    ctx.strokeStyle = colorNamed("found");
    ctx.lineWidth = devicePixelRatio;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, floor);
    ctx.stroke();
  }
  ctx.restore();
}

/** Show a part of the horizontal scale in all pictures; null is the whole of it. */
function zoomTo(range) {
  const [least, most] = wholeRange();
  const whole = range === null || (range[0] <= least && range[1] >= most) || range[0] >= range[1];
  view.range = whole ? null : range.map((end) => (view.axis === "time" ? end : Math.round(end)));
  if (view.range && view.range[0] === view.range[1]) {
    view.range[1] += 1;
  }
  showControls();
  for (const element of plots) {
    const [from, to] = view.range ?? wholeRange();
    element.plot?.setScale("x", { min: from, max: to });
  }
}
