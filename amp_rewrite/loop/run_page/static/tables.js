// The runs, their layers and all numbers as tables.

const MOST_ROWS = 60, MOST_LAYERS = 40;

const COLUMNS = [
  ["step", "Step", said], ["loss", "Loss", said], ["loss_scale", "Loss scale", said], ["skipped", "Skipped", said],
  ["learning_rate", "Learning rate", said], ["gradient_norm", "Gradient norm", said],
  ["throughput", "Examples a second", said], ["small", "Subnormal", percent], ["zero", "Zero", percent],
];

function row(kind, cells) {
  return make("tr", {}, ...cells.map((cell) => (cell instanceof HTMLTableCellElement ? cell : make(kind, {}, cell))));
}

function header(names) {
  const cells = names.map((name) => make("th", { scope: "col" }, name));
  return make("thead", {}, make("tr", {}, ...cells));
}

/** Return a place in which a wide or tall table is scrolled. */
function scrolled(name, table, tall = false) {
  const place = make("div", { className: tall ? "scroll tall" : "scroll", tabIndex: 0 }, table);
  place.setAttribute("role", "region");
  place.setAttribute("aria-label", name);
  return place;
}

function last(column) {
  return known(column ?? []).at(-1) ?? null;
}

/** Return the columns of the table of runs: name, what a run has there, how it is written. */
function runColumns() {
  const settings = [...new Set(data.runs.flatMap((run) => Object.keys(run.settings)))];
  return [
    ["Run", nameOf], ["State", stateOf], ["Epoch", (run) => run.epoch, (_, run) => `${run.epoch} of ${run.epochs}`], ["Step", (run) => run.step],
    ["Time", (run) => last(run.curves.seconds), (seconds) => (seconds === null ? said(null) : clock(seconds))],
    ["Loss", (run) => last(run.curves.loss)], ["Loss in evaluation", (run) => last(run.evaluations.eval_loss)],
    ["Loss scale", (run) => last(run.curves.loss_scale)], ["Skipped", skippedOf], ["Examples a second", (run) => last(run.curves.throughput)],
    ["Written", (run) => run.written, (seconds) => new Date(1000 * seconds).toLocaleTimeString()],
    ...settings.map((name) => [name, (run) => settingOf(run, name)]),
  ].map(([name, of, write = written]) => ({ name, of, write }));
}

function settingOf(run, name) {
  return Object.hasOwn(run.settings, name) ? run.settings[name] : null;
}

function skippedOf(run) {
  return run.curves.skipped.reduce((sum, count) => sum + count, 0);
}

function written(found) {
  return typeof found === "string" ? found : said(found);
}

/** Return the runs in the order that a reader has chosen; what is not known comes last. */
function sortedRuns(columns) {
  const column = columns.find(({ name }) => name === view.sort?.name);
  if (!column) {
    return data.runs;
  }
  const way = view.sort.down ? -1 : 1;
  const order = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
  return [...data.runs].sort((left, right) => {
    const [a, b] = [column.of(left), column.of(right)];
    return a === null || b === null ? (a === null) - (b === null) : way * order(a, b);
  });
}

function sortBy(name) {
  const down = view.sort?.name === name && !view.sort.down;
  view.sort = view.sort?.name === name && view.sort.down ? null : { name, down };
  drawRuns();
}

/** Show a row for each run; its box hides the run, the head of a column sorts. */
function drawRuns() {
  const columns = runColumns(), several = data.runs.length > 1;
  const heads = columns.map(({ name }, number) => {
    const sorted = view.sort?.name === name ? (view.sort.down ? "descending" : "ascending") : "none";
    const arrow = { ascending: " \u25b4", descending: " \u25be", none: "" }[sorted];
    const head = make("th", { scope: "col" }, several
      ? make("button", { type: "button", id: `sort-${number}`, onclick: () => sortBy(name) }, name, arrow) : name);
    if (several) {
      head.setAttribute("aria-sort", sorted);
    }
    return head;
  });
  const rows = sortedRuns(columns).map((run) => {
    const cells = columns.slice(1).map(({ name, of, write }) => make("td", {}, write(of(run), run)));
    cells.forEach((cell, number) => {
      cell.dataset.name = columns[number + 1].name;
      cell.className = columns[number + 1].of(run) === null ? "nothing" : "";
    });
    cells[0].className = run.state === "failed" || silence(run) ? "text bad" : "text";
    const box = make("input", { type: "checkbox", id: `run-${data.runs.indexOf(run)}`, checked: isShown(run), onchange: () => toggle(run) });
    const name = make("label", { className: "run-name" }, box, swatch(run), make("bdi", {}, nameOf(run)));
    return make("tr", {}, make("td", {}, name), ...cells);
  });
  const place = document.getElementById("run-table"), focused = document.activeElement?.id;
  place.replaceChildren(make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows));
  if (focused && place.querySelector(`#${CSS.escape(focused)}`)) {
    document.getElementById(focused).focus({ preventScroll: true });
  }
}

function toggle(run) {
  const name = nameOf(run);
  view.hidden = isShown(run) ? [...view.hidden, name] : view.hidden.filter((hidden) => hidden !== name);
  redraw();
}

/** Show of each run the variables whose gradients underflow most. */
function drawLayers() {
  const runs = shownRuns().filter((run) => run.layers.variable.length);
  document.getElementById("layers").hidden = !runs.length;
  document.getElementById("layer-tables").replaceChildren(...runs.map(layerTable));
}

function layerTable(run) {
  const { variable, zero, small, most } = run.layers;
  const order = variable.map((_, number) => number).sort((a, b) => most[b] - most[a] || zero[b] - zero[a]);
  const rows = order.slice(0, MOST_LAYERS).map((number) => row("td", [
    make("td", {}, make("bdi", {}, variable[number])), percent(small[number]), percent(most[number]), percent(zero[number]),
    make("td", {}, shareBar(small[number], zero[number])),
  ]));
  const left = order.length - rows.length;
  const caption = make("caption", {}, make("bdi", {}, nameOf(run)), left > 0 ? `, and ${left} more variables with smaller shares` : "");
  return scrolled(`Layers of ${nameOf(run)}`, make("table", {}, caption,
    header(["Variable", "Subnormal", "Most so far", "Zero", "Subnormal and zero"]), make("tbody", {}, ...rows)), true);
}

function shareBar(small, zero) {
  return shape("svg", { class: "share", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
    shape("rect", { class: "small", x: 0, y: 0, width: 100 * small, height: 8 }),
    shape("rect", { class: "zero", x: 100 * small, y: 0, width: 100 * zero, height: 8 }));
}

/** Offer all curves of each run as a table, which is made when it is opened. */
function drawNumbers() {
  document.getElementById("number-tables").replaceChildren(...shownRuns().map((run) => {
    const name = nameOf(run), details = make("details", { open: view.open.includes(name) });
    const fill = () => details.open && details.children.length === 1 && details.append(...numberTables(run));
    details.append(make("summary", { id: `numbers-${data.runs.indexOf(run)}` }, make("bdi", {}, name)));
    details.addEventListener("toggle", () => {
      view.open = [...view.open.filter((open) => open !== name), ...(details.open ? [name] : [])];
      fill();
    });
    fill();
    return details;
  }));
}

function numberTables(run) {
  const shown = COLUMNS.filter(([column]) => known(run.curves[column]).length);
  const training = table(run.curves, shown, `Training: each row is the mean of up to ${run.width} steps`);
  const names = Object.keys(run.evaluations).filter((name) => name !== "step");
  const columns = [["step", "Step", said], ...names.map((name) => [name, name, said])];
  const found = [scrolled(`Training of ${nameOf(run)}`, training, true)];
  if (names.length) {
    found.push(scrolled(`Evaluations of ${nameOf(run)}`, table(run.evaluations, columns, "Evaluation"), true));
  }
  return found;
}

/** Return a table of at most MOST_ROWS rows, evenly chosen, the last one among them. */
function table(curves, columns, said) {
  const count = curves.step.length, stride = Math.ceil(count / MOST_ROWS) || 1;
  const chosen = curves.step.map((_, at) => at).filter((at) => (count - 1 - at) % stride === 0);
  const caption = make("caption", {}, stride > 1 ? `${said}; one row of ${stride} is shown` : said);
  const rows = chosen.map((at) => row("td", columns.map(([column, , shown]) => shown(curves[column][at]))));
  return make("table", {}, caption, header(columns.map(([, name]) => name)), make("tbody", {}, ...rows));
}
