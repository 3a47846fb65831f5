"use strict";
// The runs, and what is asked of them; what a reader has chosen, kept while the page is loaded again.

/** What a reader has chosen. */
const view = { hidden: [], paused: false, theme: null, cursor: null, log: false, open: [], scroll: 0, focus: null };

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
  return size >= 1e6 || (size && size < 1e-3) ? number.toExponential(2) : String(Number(number.toPrecision(4)));
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
