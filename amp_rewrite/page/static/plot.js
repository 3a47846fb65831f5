// Pictures of numbers, drawn by uPlot in the page's colors; each has a sentence that says the same.

const PLOT_FONT = '11px system-ui, "Segoe UI", "DejaVu Sans", sans-serif';

/** The pictures on the page: drawn anew in other colors, taken away when something replaces them. */
const plots = new Set();

/** Return a color of the page's style, as it is now. */
function colorNamed(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/**
 * Return an axis with its name.
 *
 * `write` makes a text of a number; `more` is anything of uPlot's axes.
 */
function axisNamed(name, write, more = {}) {
  return {
    label: name, labelSize: 17, labelGap: 0, gap: 4, font: PLOT_FONT, labelFont: PLOT_FONT,
    stroke: () => colorNamed("soft"),
    grid: { stroke: () => colorNamed("line"), width: 0.6 },
    ticks: { stroke: () => colorNamed("line"), width: 0.6, size: 4 },
    values: (_, splits) => withoutRepeats(splits.map((at) => (at === null ? "" : write(at)))),
    ...more,
  };
}

/** Return an axis at the side, as wide as what is written along it. */
function sideAxis(name, write, more = {}) {
  const size = (_, values) => 12 + Math.ceil(6.4 * Math.max(2, ...(values ?? []).map((value) => String(value).length)));
  return axisNamed(name, write, { side: 3, size, ...more });
}

/** Return texts of which none stands beside an equal one: rounded numbers may be the same. */
function withoutRepeats(texts) {
  return texts.map((said, place) => (place && said === texts[place - 1] ? "" : said));
}

/** Return a number in as few characters as a scale needs. */
function brief(number) {
  const size = Math.abs(number);
  if (Number.isInteger(number) && size < 1e7) {
    return String(number);
  }
  if (size >= 1e5 || (size && size < 1e-3)) {
    return number.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e");
  }
  return String(Number(number.toPrecision(4)));
}

/** Return the scale of numbers from 0 on whose ratios count, by powers of a base. */
function logarithmic(base = 10) {
  return { distr: 3, log: base };
}

/**
 * Return an element that draws a picture as soon as it has a width, and again when it has another.
 *
 * `options` are those of uPlot, with `height`. The element's `plot` is uPlot's object, once drawn.
 */
function plotOf(said, options, columns) {
  const element = make("div", { className: "plot", plot: null });
  element.setAttribute("role", "img");
  element.setAttribute("aria-label", said);
  element.style.minHeight = `${options.height}px`;
  const fit = () => {
    const width = Math.floor(element.clientWidth);
    if (width && !element.plot) {
      element.plot = new uPlot({ legend: { show: false }, ...options, width }, columns, element);
      element.dispatchEvent(new Event("drawn"));
    } else if (width && element.plot.width !== width) {
      element.plot.setSize({ width, height: options.height });
    }
  };
  element.watcher = new ResizeObserver(fit);
  element.watcher.observe(element);
  plots.add(element);
  return element;
}

/** Draw all pictures again: in other colors, or with another mark on them. */
function redrawPlots() {
  plots.forEach((element) => element.plot?.redraw(false));
}

/** Take the pictures in a place away. */
function removePlots(place) {
  for (const element of [...plots].filter((one) => place.contains(one))) {
    element.watcher.disconnect();
    element.plot?.destroy();
    plots.delete(element);
  }
  place.replaceChildren();
}

/** Return the number of a picture under the pointer, null where there is none. */
function pointed(plot) {
  const { left } = plot.cursor;
  return left === undefined || left === null || left < 0 ? null : plot.posToVal(left, "x");
}

/** Call back with a place in the picture when it is clicked, not when a range in it was drawn. */
function onPlotClick(plot, answer) {
  let begin = null;
  plot.over.addEventListener("mousedown", (event) => { begin = event.clientX; });
  plot.over.addEventListener("click", (event) => {
    if (begin !== null && Math.abs(event.clientX - begin) < 4) {
      answer(plot.posToVal(event.offsetX, "x"), event);
    }
  });
}
