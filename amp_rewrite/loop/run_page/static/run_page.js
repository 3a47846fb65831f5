// The page: drawn, and drawn anew whenever there is something new or a reader has chosen something.

function headline() {
  const title = document.getElementById("headline"), [run] = data.runs;
  title.className = "";
  if (data.runs.length !== 1) {
    title.textContent = data.runs.length ? `${data.runs.length} runs: ${countsOfStates()}` : "No run is here yet";
    return;
  }
  const where = `step ${run.step}, epoch ${run.epoch} of ${run.epochs}`;
  title.textContent = `${stateOf(run).replace(/^./, (first) => first.toUpperCase())} \u2013 ${where}`;
  title.className = run.state === "finished" ? "good" : run.state === "failed" || silence(run) ? "bad" : "";
}

function redraw() {
  const focused = document.activeElement?.id;
  const [run] = data.runs, one = data.runs.length === 1;
  const name = one ? nameOf(run) : "Runs";
  document.title = one ? `${name}: ${stateOf(run)}` : `${data.runs.length} runs`;
  document.getElementById("name").textContent = name;
  document.getElementById("about").textContent = one ? run.precision : "";
  document.getElementById("tool").textContent = run?.tool ?? "";
  headline();
  drawRuns();
  showRemarks();
  redrawPictures();
  drawLayers();
  drawNumbers();
  if (focused && document.activeElement?.id !== focused) {
    document.getElementById(focused)?.focus({ preventScroll: true });
  }
}

function showRemarks() {
  const place = document.getElementById("remarks");
  const lines = [...new Set(shownRuns().flatMap((run) => run.missing))];
  place.replaceChildren(...lines.map((line) => make("li", {}, `Not measured: ${line}`)));
  place.hidden = !lines.length;
}

/** Show what is chosen for all pictures. */
function showControls() {
  const [, most] = wholeRange(), fine = view.axis === "time" ? most / 500 : 1;
  const slider = document.getElementById("cursor");
  Object.assign(slider, { min: "0", max: String(most), step: String(fine) });
  slider.value = String(view.cursor ?? most);
  const place = view.axis === "time" ? clock : (step) => `step ${Math.round(step)}`;
  const at = view.cursor === null ? "the last step" : place(view.cursor);
  document.getElementById("cursor-step").textContent = at;
  slider.setAttribute("aria-valuetext", at);
  const [from, to] = view.range ?? [0, most];
  const shown = (end) => String(view.axis === "time" ? Number(end.toPrecision(4)) : Math.round(end));
  for (const [id, end] of [["from", from], ["to", to]]) {
    const field = document.getElementById(id);
    field.step = view.axis === "time" ? "any" : "1";
    field.value = shown(end);
    field.title = view.axis === "time" ? "seconds" : "step";
  }
  document.getElementById("whole").disabled = view.range === null;
  document.getElementById("axis").value = view.axis;
  document.getElementById("smooth").value = String(view.smooth);
  document.getElementById("log").checked = view.log;
  }

/** Read the pictures at a place; null follows the last step. */
function moveCursor(place) {
  const [, most] = wholeRange(), at = view.axis === "time" ? place : Math.round(place);
  view.cursor = at >= most ? null : Math.max(0, at);
  showControls();
  for (const element of document.querySelectorAll("figure")) {
    element.tell?.(view.cursor);
  }
  redrawPlots();
}

/** Draw the pictures over steps or over time: what is marked on one scale is not on the other. */
function setAxis(axis) {
  Object.assign(view, { axis, cursor: null, range: null });
  redrawPictures();
}

function redrawPictures() {
  showControls();
  drawCurves();
  drawDifferences();
}

function setTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = view.theme ?? (dark ? "dark" : "light");
  redrawPlots();
}

function showPaused() {
  document.getElementById("pause").setAttribute("aria-pressed", String(view.paused));
}

function listen() {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", setTheme);
  document.getElementById("theme").onclick = () => {
    view.theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    setTheme();
  };
  document.getElementById("pause").onclick = () => {
    view.paused = !view.paused;
    showPaused();
  };
  document.getElementById("log").onchange = (event) => {
    view.log = event.target.checked;
    redrawPictures();
  };
  document.getElementById("smooth").oninput = (event) => {
    view.smooth = Number(event.target.value);
    redrawPictures();
  };
  document.getElementById("axis").onchange = (event) => setAxis(event.target.value);
  document.getElementById("cursor").oninput = (event) => moveCursor(Number(event.target.value));
  for (const id of ["from", "to"]) {
    document.getElementById(id).onchange = () => {
      zoomTo(["from", "to"].map((end) => Number(document.getElementById(end).value)));
    };
  }
  document.getElementById("whole").onclick = () => zoomTo(null);
  ["first-run", "second-run"].forEach((id, number) => {
    document.getElementById(id).onchange = (event) => compareWith(number, event.target.value);
  });
}

recall();
setTheme();
showPaused();
redraw();
listen();
history.scrollRestoration = "manual";
scrollTo(0, view.scroll);
document.getElementById(view.focus)?.focus({ preventScroll: true });
refreshLater();
document.documentElement.dataset.ready = "true";
