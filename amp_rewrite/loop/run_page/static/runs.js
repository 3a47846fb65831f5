"use strict";
// The runs, and what is asked of them; what a reader has chosen, kept while the page is loaded again.

/** What a reader has chosen. */
const view = {
  hidden: [], paused: false, theme: null, open: [], scroll: 0, focus: null,
  log: false, axis: "step", smooth: 0, cursor: null, range: null, sort: null, compared: [],
};

const KEPT = `amp-rewrite ${location.pathname}`;
const COLORS = 6;
const DASHES = ["", "7 3", "2 3", "9 3 2 3", "12 4", "4 2 1 2"];

/** Seconds without news, at least, after which a running run may have been killed. */
const SILENCE = 30;

let data = JSON.parse(document.getElementById("data").textContent);

/** Take over what was chosen before the page was loaded again. */
function recall() {
  try {
    Object.assign(view, JSON.parse(sessionStorage.getItem(KEPT) ?? "{}"));
  } catch {
    // Without storage the page begins as it is.
  }
}

function keep() {
  view.scroll = scrollY;
  view.focus = document.activeElement?.id || null;
  try {
    sessionStorage.setItem(KEPT, JSON.stringify(view));
  } catch {
    // See above.
  }
}

/** Return what a run is called: its title, with its file where two have one title. */
function nameOf(run) {
  const twice = data.runs.filter((other) => other.title === run.title).length > 1;
  return twice && run.file ? `${run.title} (${run.file})` : run.title;
}

function isShown(run) {
  return !view.hidden.includes(nameOf(run));
}

function shownRuns() {
  return data.runs.filter(isShown);
}

function colorOf(run) {
  return `run-${data.runs.indexOf(run) % COLORS}`;
}

function dashOf(run) {
  return DASHES[data.runs.indexOf(run) % DASHES.length];
}

/** Return for how many seconds nothing has been heard of a run that goes on, 0 if that is usual. */
function silence(run) {
  const age = Date.now() / 1000 - run.written;
  return run.state === "running" && age > Math.max(SILENCE, 15 * run.every) ? age : 0;
}

function isRunning() {
  return data.runs.some((run) => run.state === "running");
}

/** Return how many runs are how: one that nothing is heard of is not said to be running. */
function countsOfStates() {
  const counts = new Map();
  for (const run of data.runs) {
    const state = silence(run) ? "without news" : run.state;
    counts.set(state, (counts.get(state) ?? 0) + 1);
  }
  return [...counts].map(([state, count]) => `${count} ${state}`).join(", ");
}

/** Return how a run is, in words. */
function stateOf(run) {
  const quiet = silence(run);
  if (quiet) {
    return `no news for ${duration(quiet)}; the process may have been killed`;
  }
  return run.reason ? `${run.state}: ${run.reason}` : run.state;
}

function duration(seconds) {
  const units = [["h", 3600], ["min", 60], ["s", 1]];
  const [unit, size] = units.find(([, length]) => seconds >= length) ?? units[2];
  return `${Math.round(seconds / size)} ${unit}`;
}

/** Return a number as a reader likes it. */
function said(number) {
  if (number === null || number === undefined) {
    return "\u2013";
  }
  const size = Math.abs(number);
  if (Number.isInteger(number) && size < 1e7) {
    return String(number);
  }
  const isOdd = size >= 1e6 || (size && size < 1e-3);
  return isOdd ? Number(number.toPrecision(3)).toExponential() : String(Number(number.toPrecision(4)));
}

/** Steps between two marks of a scale of seconds: those of a clock. */
const CLOCK_STEPS = [0.001, 0.01, 0.1, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400,
  172800, 432000, 864000, 4320000];
/** Steps between two marks of a scale of steps: there is no half step. */
const WHOLE_STEPS = Array.from({ length: 10 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat();

/** Return seconds as a clock has them. */
function clock(seconds) {
  if (seconds < 60) {
    return `${Number(seconds.toPrecision(3))} s`;
  }
  const whole = Math.round(seconds), two = (number) => String(number).padStart(2, "0");
  const minutes = Math.floor(whole / 60);
  return minutes < 60 ? `${minutes}:${two(whole % 60)}` : `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${two(whole % 60)}`;
}

/** Return where steps of a run lie on the horizontal scale: at their number, or their time. */
function placesOf(run, steps) {
  if (view.axis !== "time") {
    return steps;
  }
  const { step, seconds } = run.curves;
  let row = 0;
  return steps.map((wanted) => {
    while (row < step.length - 1 && step[row] < wanted) {
      row++;
    }
    return seconds[row] ?? 0;
  });
}

function percent(share) {
  return share === null ? "\u2013" : `${(100 * share).toFixed(share && share < 0.001 ? 3 : 1)} %`;
}

/** Return the row of a column's last number at or before a step, -1 if there is none. */
function rowAt(steps, column, step) {
  for (let row = steps.length - 1; row >= 0; row--) {
    if (steps[row] <= step && column[row] !== null) {
      return row;
    }
  }
  return -1;
}
