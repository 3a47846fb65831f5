// One picture for each quantity, with the curves of all runs that are shown.

const WIDTH = 560, HEIGHT = 240, LEFT = 58, RIGHT = 10, TOP = 10, BOTTOM = 26;

/** Return the pictures: title, the scale's base (0 is linear), and what of a run it shows. */
function pictures() {
  const of = (column) => (run) => [{ steps: run.curves.step, column: run.curves[column] }];
  const evaluated = (name) => (run) =>
    (Object.hasOwn(run.evaluations, name) ? [{ steps: run.evaluations.step, column: run.evaluations[name], dots: true }] : []);
  const metrics = new Set(data.runs.flatMap((run) => Object.keys(run.evaluations)));
  metrics.delete("step");
  metrics.delete("eval_loss");
  return [
    { title: "Loss: line in training, dots in evaluation", short: "Loss", base: view.log ? 10 : 0, skips: true,
      of: (run) => [...of("loss")(run), ...evaluated("eval_loss")(run)] },
    ...[...metrics].sort().map((name) => ({ title: `${name.replace(/^eval_/, "")} in evaluation`,
      short: name, base: 0, of: evaluated(name) })),
    { title: "Loss scale", short: "Loss scale", base: 2, skips: true, of: of("loss_scale") },
    { title: "Learning rate", short: "Learning rate", base: 0, of: of("learning_rate") },
    { title: "Norm of the gradients before clipping", short: "Gradient norm", base: 10, of: of("gradient_norm") },
    { title: "Examples a second", short: "Throughput", base: 0, zero: true, of: of("throughput") },
    { title: "Share of the gradients' elements that are subnormal", short: "Subnormal", base: 0, zero: true, share: true, of: of("small") },
    { title: "Share of the gradients' elements that are zero", short: "Zero", base: 0, zero: true, share: true, of: of("zero") },
  ];
}

function known(column) {
  return column.filter((number) => number !== null);
}

/** Return the curves of a picture that have numbers, with the runs they are of. */
function curvesOf(picture) {
  return shownRuns().flatMap((run) => picture.of(run).map((curve) => ({ run, ...curve })))
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
      skips ||= Boolean(picture.skips) && curves.some(({ run }) => run.curves.skipped.some((count) => count));
    }
  }
  place.replaceChildren(...drawn);
  document.getElementById("no-curves").hidden = drawn.length > 0;
  document.getElementById("marks").hidden = !skips;
}

function figureOf(picture, curves) {
  const caption = make("figcaption", {}, `${picture.title} `, valuesOf(picture, curves));
  return make("figure", {}, caption, drawingOf(picture, curves));
}

/** Return what each curve is at the cursor, or at its end. */
function valuesOf(picture, curves) {
  const list = make("ul", { className: "values" });
  for (const curve of curves) {
    const row = rowAt(curve.steps, curve.column, view.cursor ?? Infinity);
    const number = row < 0 ? null : curve.column[row];
    list.append(make("li", {}, swatch(curve.run, curve.dots), picture.share ? percent(number) : said(number)));
  }
  return list;
}

/** Return a sample of a run's line. */
function swatch(run, dots = false) {
  const mark = dots ? shape("circle", { class: "point", cx: 18, cy: 6, r: 4 })
    : shape("line", { class: "line", x1: 1, x2: 35, y1: 6, y2: 6, "stroke-dasharray": dashOf(run) });
  return shape("svg", { class: `swatch ${colorOf(run)}`, viewBox: "0 0 36 12", "aria-hidden": "true" }, mark);
}

function drawingOf(picture, curves) {
  const numbers = curves.flatMap((curve) => known(curve.column));
  const floor = HEIGHT - BOTTOM;
  const y = picture.base ? logScale(numbers, floor, TOP, picture.base)
    : linearScale(picture.zero ? [0, ...numbers] : numbers, floor, TOP);
  const x = linearScale([0, Math.max(1, lastStep())], LEFT, WIDTH - RIGHT);
  const spoken = curves.map(({ run, column, dots }) => {
    const values = known(column);
    return `${nameOf(run)}${dots ? " in evaluation" : ""}: from ${said(values[0])} to ${said(values.at(-1))}`;
  });
  return chart(WIDTH, HEIGHT, `${picture.short} over ${lastStep()} steps; ${spoken.join("; ")}`,
    ...y.ticks.flatMap((tick) => [
      shape("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y.place(tick), y2: y.place(tick) }),
      label(LEFT - 5, y.place(tick) + 4, picture.share ? percent(tick) : said(tick), "end"),
    ]),
    ...x.ticks.map((tick) => label(x.place(tick), HEIGHT - 8, said(tick), "middle")),
    shape("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: floor, y2: floor }),
    ...curves.map((curve) => lineOf(curve, x, y)),
    ...(picture.skips ? [...new Set(curves.map(({ run }) => run))].map((run) => skipsOf(run, x, floor)) : []),
    ...cursorLine(x, floor));
}

/** Return a curve: a line through numbers that follow each other, a dot for one alone. */
function lineOf({ run, steps, column, dots }, x, y) {
  const group = shape("g", { class: colorOf(run) });
  let piece = [];
  const end = () => {
    if (piece.length > 1) {
      group.append(shape("polyline", { class: dots ? "line thin" : "line", points: piece.join(" "), "stroke-dasharray": dashOf(run) }));
    }
    if (dots || piece.length === 1) {
      group.append(...piece.map((point) => shape("circle", { class: "point", cx: point.split(",")[0], cy: point.split(",")[1], r: 3 })));
    }
    piece = [];
  };
  column.forEach((number, row) => {
    if (number === null) {
      return dots ? undefined : end();
    }
    return piece.push(`${x.place(steps[row]).toFixed(1)},${y.place(number).toFixed(1)}`);
  });
  end();
  return group;
}

/** Return a triangle for each point with steps that were skipped. */
function skipsOf(run, x, floor) {
  const group = shape("g", { class: colorOf(run) });
  run.curves.skipped.forEach((count, row) => {
    if (count) {
      const at = x.place(run.curves.step[row]);
      const mark = shape("path", { class: "skip", d: `M${at.toFixed(1)} ${floor - 7}l4 7h-8z` });
      mark.append(shape("title", {}, `${nameOf(run)}: ${count} skipped up to step ${run.curves.step[row]}`));
      group.append(mark);
    }
  });
  return group;
}

function cursorLine(x, floor) {
  return view.cursor === null ? []
    : [shape("line", { class: "at", x1: x.place(view.cursor), x2: x.place(view.cursor), y1: TOP, y2: floor })];
}

/** Return the step under a pointer over a picture. */
function stepAt(event, picture) {
  const box = picture.getBoundingClientRect();
  const at = ((event.clientX - box.left) / box.width) * WIDTH;
  const share = (at - LEFT) / (WIDTH - LEFT - RIGHT);
  return Math.round(Math.min(1, Math.max(0, share)) * Math.max(1, lastStep()));
}
