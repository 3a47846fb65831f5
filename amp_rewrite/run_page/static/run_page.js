// The page: drawn, and drawn anew whenever there is something new or a reader has chosen something.

function headline() {
  const title = document.getElementById("headline"), [run] = data.runs;
  title.className = "";
  if (data.runs.length !== 1) {
    const running = data.runs.filter((one) => one.state === "running").length;
    title.textContent = data.runs.length ? `${data.runs.length} runs, ${running} of them running` : "No run is here yet";
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
  showCursor();
  drawCurves();
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

function showCursor() {
  const slider = document.getElementById("cursor");
  slider.max = String(lastStep());
  slider.value = String(view.cursor ?? lastStep());
  document.getElementById("cursor-step").textContent = view.cursor === null ? "the last one" : String(view.cursor);
}

/** Move the cursor to a step; null follows the last one. */
function moveCursor(step) {
  view.cursor = step === null || step >= lastStep() ? null : step;
  showCursor();
  drawCurves();
}

function setTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = view.theme ?? (dark ? "dark" : "light");
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
    drawCurves();
  };
  document.getElementById("cursor").oninput = (event) => moveCursor(Number(event.target.value));
  document.getElementById("charts").addEventListener("click", (event) => {
    const picture = event.target.closest("svg[role=img]");
    if (picture) {
      moveCursor(stepAt(event, picture));
    }
  });
}

recall();
setTheme();
showPaused();
document.getElementById("log").checked = view.log;
redraw();
listen();
history.scrollRestoration = "manual";
scrollTo(0, view.scroll);
document.getElementById(view.focus)?.focus({ preventScroll: true });
refreshLater();
document.documentElement.dataset.ready = "true";
