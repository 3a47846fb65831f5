// How the page becomes new: a file is loaded again, a page that is served asks for new data.

/** Seconds between two looks at a served folder, and at one in which no run goes on. */
const SERVED = 5, SERVED_IDLE = 30;

let pressed = false;
addEventListener("pointerdown", () => { pressed = true; });
addEventListener("pointerup", () => { pressed = false; });
addEventListener("pointercancel", () => { pressed = false; });

/** Return whether a reader is doing something that a new page would interrupt. */
function isBusy() {
  return view.paused || document.hidden || pressed || !getSelection().isCollapsed;
}

/** Return after how many seconds to look for something new, 0 for never. */
function pace() {
  if (data.source) {
    return isRunning() ? SERVED : SERVED_IDLE;
  }
  const [run] = data.runs;
  return run?.state === "running" ? Math.max(1, run.every, Math.min(SERVED_IDLE, silence(run))) : 0;
}

function refreshLater() {
  const seconds = pace();
  document.getElementById("pause").hidden = !seconds;
  document.documentElement.dataset.refreshes = String(seconds > 0);
  if (seconds) {
    setTimeout(refreshWhenIdle, 1000 * seconds);
  }
}

async function refreshWhenIdle() {
  if (isBusy()) {
    setTimeout(refreshWhenIdle, 500);
    return;
  }
  if (!data.source) {
    keep();
    location.reload();
    return;
  }
  await ask();
  refreshLater();
}

/** Take what the server has now. */
async function ask() {
  const remark = document.getElementById("about");
  try {
    const answer = await fetch(data.source, { cache: "no-cache" });
    if (!answer.ok) {
      throw new Error(`the server answers ${answer.status}`);
    }
    const found = await answer.text();
    if (found !== ask.before) {
      ask.before = found;
      data = JSON.parse(found);
      redraw();
    }
  } catch (error) {
    remark.textContent = `No news: ${error.message}`;
  }
}
