// Pictures of what was measured.

/** Return what a power of two is called. */
function power(exponent) {
  return `2${[...String(Math.round(exponent))].map((digit) => RAISED[digit]).join("")}`;
}

const RAISED = { "-": "\u207b", 0: "\u2070", 1: "\u00b9", 2: "\u00b2", 3: "\u00b3", 4: "\u2074", 5: "\u2075", 6: "\u2076", 7: "\u2077", 8: "\u2078", 9: "\u2079" };

/** Return the rows of a node's measured values. */
function histogramsOf(node) {
  return data.pictures.histograms.node.flatMap((owner, row) => (owner === node ? [row] : []));
}

/** By node, its error; undefined where verify did not look. */
const errorOf = new Map(data.pictures.errors.node.map((node, row) => [node, data.pictures.errors.distance[row]]));

/** Return how many of some elements, counted by power of two, the low type cannot hold: too large, too small. */
function lostAmong(first, counts) {
  const { largest, smallest } = data.pictures.range;
  let over = 0, under = 0;
  counts.forEach((count, bin) => {
    const exponent = first + bin;
    over += exponent >= largest ? count : 0;
    under += exponent < smallest - 1 ? count : 0;
  });
  return { over, under };
}

/** Return counts by power of two against the range of the low type, as a picture. */
function histogramChart(first, counts, name) {
  const { largest, normal, smallest } = data.pictures.range;
  const least = Math.min(first, Math.floor(Math.max(smallest, -40))) - 1;
  const most = Math.max(first + counts.length, Math.min(Math.ceil(largest), 40)) + 1;
  const exponents = Array.from({ length: most - least }, (_, bin) => least + bin);
  const count = (exponent) => counts[exponent - first] || null;
  const isOutside = (exponent) => exponent >= largest || exponent < normal;
  const columns = [exponents, exponents.map((at) => (isOutside(at) ? null : count(at))), exponents.map((at) => (isOutside(at) ? count(at) : null))];
  const bars = (color) => ({ fill: () => colorNamed(color), width: 0, points: { show: false }, paths: uPlot.paths.bars({ size: [1, Infinity, 1], align: 1, gap: 1 }) });
  const { over, under } = lostAmong(first, counts);
  const said = `Magnitudes of ${name} by power of two, from ${power(first)} to ${power(first + counts.length)}; ${over} too large for ${data.precision}, ${under} too small`;
  const readout = make("p", { className: "readout" });
  const tell = (at) => {
    readout.textContent = at === null || !count(at) ? `dashed: the range of ${data.precision}` : `${power(at)} to ${power(at + 1)}: ${count(at).toLocaleString("en")} elements`;
  };
  tell(null);
  const picture = plotOf(said, {
    height: 150,
    scales: { x: { time: false, range: () => [least, most] }, y: { ...logarithmic(), range: [0.7, 2 * Math.max(1, ...counts)] } },
    axes: [axisNamed("magnitude", power, { size: 28, space: 44, incrs: [1, 2, 4, 8, 16, 32, 64] }), sideAxis("elements", brief)],
    series: [{}, bars("low"), bars("kept")],
    padding: [8, 10, 0, 0],
    cursor: { drag: { x: false, y: false }, y: false, points: { show: false } },
    hooks: {
      setCursor: [(plot) => tell(pointed(plot) === null ? null : Math.floor(pointed(plot)))],
      draw: [(plot) => [largest, normal, smallest].forEach((limit) => drawLimit(plot, "x", limit, ""))],
    },
  }, columns);
  return make("figure", {}, picture, readout);
}

/** Draw a limit across a picture, with its name at the end. */
function drawLimit(plot, scale, limit, name, color = "bad") {
  const { ctx, bbox } = plot, { min, max } = plot.scales[scale];
  if (limit < min || limit > max) {
    return;
  }
  const at = plot.valToPos(limit, scale, true), ratio = devicePixelRatio;
  ctx.save();
  ctx.strokeStyle = colorNamed(color);
  ctx.lineWidth = ratio;
  ctx.setLineDash([4 * ratio, 3 * ratio]);
  ctx.beginPath();
  if (scale === "x") {
    ctx.moveTo(at, bbox.top);
    ctx.lineTo(at, bbox.top + bbox.height);
  } else {
    ctx.moveTo(bbox.left, at);
    ctx.lineTo(bbox.left + bbox.width, at);
  }
  ctx.stroke();
  if (name) {
    ctx.font = `${11 * ratio}px system-ui, "DejaVu Sans", sans-serif`;
    ctx.textAlign = "right";
    ctx.textBaseline = "bottom";
    ctx.setLineDash([]);
    ctx.lineWidth = 4 * ratio;
    ctx.strokeStyle = colorNamed("raised");
    ctx.strokeText(name, bbox.left + bbox.width - 4 * ratio, at - 2 * ratio);
    ctx.fillStyle = colorNamed("ink");
    ctx.fillText(name, bbox.left + bbox.width - 4 * ratio, at - 2 * ratio);
  }
  ctx.restore();
}

/** Return a legend: samples of colors, and what they mean. */
function legendOf(...entries) {
  return make("ul", { className: "key" }, ...entries.map(([kind, said]) => make("li", {}, make("span", { className: `sample ${kind}` }), said)));
}

/** Return a figure: a caption, a legend, the picture, and a line for what is under the pointer. */
function figureOf(caption, legend, picture, readout) {
  return make("figure", { className: "chart" }, make("figcaption", {}, caption), legend, picture, readout);
}

/** Let a picture tell what is under the pointer, and lead to its node when it is clicked. */
function reader(hint, tell, nodeAt) {
  const readout = make("p", { className: "readout" }, hint);
  return {
    readout,
    hook: (plot) => {
      const at = pointed(plot);
      readout.replaceChildren(...(at === null ? [hint] : tell(at)));
    },
    listen: (element) => element.addEventListener("drawn", () => onPlotClick(element.plot, (at) => {
      const node = nodeAt(at);
      if (node !== undefined) {
        showNode(node);
      }
    })),
  };
}

const POINT_AND_CLICK = "Point to read, click to see the node.";

/** The shares of a value's numbers outside the range from which a bar has another color. */
const RARE = 0.001, MANY = 0.1;

/** Return the share of a value's numbers that are subnormal or beyond the largest; 1 where any is beyond. */
function shareOutside(first, counts, largest, normal) {
  if (first + counts.length - 1 >= largest) {
    return 1;
  }
  const below = counts.slice(0, Math.max(0, normal - first)).reduce((sum, count) => sum + count, 0);
  return below / counts.reduce((sum, count) => sum + count, 0);
}

function colorOfShare(share) {
  return share < RARE ? "low" : share < MANY ? "mixed" : "kept";
}

/** Return all measured values, one bar each, against the range of the low type. */
function spreadChart() {
  const { first, counts, node } = data.pictures.histograms, { largest, normal, smallest } = data.pictures.range;
  const filled = node.map((_, row) => row).filter((row) => counts[row].length);
  const least = Math.max(-60, Math.min(...filled.map((row) => first[row]), normal - 2));
  const most = Math.min(60, Math.max(...filled.map((row) => first[row] + counts[row].length), Math.min(largest, 60) + 1));
  const bounds = filled.map((row) => [first[row], first[row] + counts[row].length]);
  const outside = filled.map((row) => shareOutside(first[row], counts[row], largest, normal));
  const nearest = (at) => Math.min(filled.length - 1, Math.max(0, Math.floor(at)));
  const said = `The magnitudes of ${filled.length} values in execution order, as powers of two, against the range of ${data.precision}`;
  const { readout, hook, listen } = reader(POINT_AND_CLICK, (at) => {
    const [bottom, top] = bounds[nearest(at)];
    const share = outside[nearest(at)], beyond = share && share < RARE ? "less than 0.1" : brief(100 * share);
    return [named(nameOf(node[filled[nearest(at)]])), ` ${power(bottom)} to ${power(top)}, ${beyond} % outside the normal range`];
  }, (at) => node[filled[nearest(at)]]);
  const picture = plotOf(said, {
    height: 300,
    scales: { x: { time: false, range: () => [0, filled.length] }, y: { range: () => [least, most] } },
    axes: [axisNamed("value, in execution order", brief, { size: 28, incrs: WHOLE }), sideAxis("magnitude", power, { incrs: [5, 10, 20, 40] })],
    series: [{}, { show: true, stroke: "transparent", width: 0, points: { show: false } }],
    padding: [8, 14, 0, 0],
    cursor: { drag: { x: false, y: false }, points: { show: false } },
    hooks: {
      setCursor: [hook],
      draw: [(plot) => {
        drawBounds(plot, bounds.map(([bottom, top]) => [Math.max(least, bottom), Math.min(most, top)]), (row) => colorOfShare(outside[row]));
        [[largest, "largest"], [normal, "least normal"], [smallest, "least"]].forEach(([limit, name]) => drawLimit(plot, "y", limit, `${name} of ${data.precision}`));
      }],
    },
  }, [filled.map((_, place) => place), bounds.map(([, top]) => top)]);
  listen(picture);
  return figureOf("Magnitudes of the values in float32, from the smallest to the largest",
    legendOf(["low", `outside the normal range of ${data.precision}: less than 0.1 % of its numbers`], ["mixed", "0.1 % to 10 %"], ["kept", "more, or any beyond the largest number"]), picture, readout);
}

const WHOLE = Array.from({ length: 8 }, (_, zeros) => [1, 2, 5].map((digit) => digit * 10 ** zeros)).flat();

/** Draw a bar from a least to a most for each row. */
function drawBounds(plot, bounds, colorOf) {
  const { ctx } = plot, colors = { low: colorNamed("low"), kept: colorNamed("kept") };
  for (const [row, [bottom, top]] of bounds.entries()) {
    const left = plot.valToPos(row, "x", true), right = plot.valToPos(row + 1, "x", true);
    const high = plot.valToPos(top, "y", true), low = plot.valToPos(bottom, "y", true);
    ctx.fillStyle = colors[colorOf(row)];
    ctx.fillRect(left, high, Math.max(devicePixelRatio, right - left - (right - left > 4 ? 1 : 0)), Math.max(devicePixelRatio, low - high));
  }
}

/** Return numbers for a scale on which ratios count: 0 lies below all others, infinity nowhere. */
function forRatios(numbers) {
  const positive = numbers.filter((number) => typeof number === "number" && number > 0);
  const least = positive.length ? Math.min(...positive) / 2 : 1e-9;
  return numbers.map((number) => (typeof number !== "number" ? null : number > 0 ? number : least));
}

/** Return the errors of the nodes in execution order. */
function errorChart() {
  const { node, distance } = data.pictures.errors, count = node.length;
  const nearest = (at) => Math.min(count - 1, Math.max(0, Math.round(at)));
  const said = `The error of the results of ${count} nodes in execution order, relative to their size: up to ${largestOf(distance)}`;
  const { readout, hook, listen } = reader(`${POINT_AND_CLICK} An error of 0 lies at the bottom.`,
    (at) => [named(nameOf(node[nearest(at)])), ` ${distance[nearest(at)]}`], (at) => node[nearest(at)]);
  const line = { stroke: () => colorNamed("low"), width: 1.5, spanGaps: true, points: { show: count <= 60, size: 5, fill: () => colorNamed("low") } };
  const picture = plotOf(said, {
    height: 300,
    scales: { x: { time: false, range: () => [-0.5, count - 0.5] }, y: logarithmic() },
    axes: [axisNamed("node, in execution order", brief, { size: 28, incrs: WHOLE }), sideAxis("relative error", brief)],
    series: [{}, line],
    padding: [8, 14, 0, 0],
    cursor: { drag: { x: false, y: false } },
    hooks: { setCursor: [hook] },
  }, [node.map((_, row) => row), forRatios(distance)]);
  listen(picture);
  return figureOf("Relative error of every result along the graph; a step up is where it arises", picture, readout);
}

/** Return the largest of numbers, among which JSON has no infinity: that is a text. */
function largestOf(numbers) {
  const odd = numbers.find((number) => typeof number === "string");
  return odd ?? Math.max(0, ...numbers.filter((number) => number !== null));
}

/** Return the sets that lose less than all smaller ones: [nodes, loss], the smallest set first. */
function frontOf(best) {
  const size = (loss) => (typeof loss === "number" ? loss : Infinity), front = [];
  for (const [count, found] of [...best].sort(([a], [b]) => a - b)) {
    if (!front.length || size(found) < size(front.at(-1)[1])) {
      front.push([count, found]);
    }
  }
  return front;
}

/** Return what a search tried: nodes kept float32 against the loss, and the curve of the best trades. */
function searchChart() {
  const { kept, loss, limit, chosen, metric } = data.pictures.search;
  const size = (found) => (typeof found === "number" ? found : Infinity), best = new Map();
  kept.forEach((count, trial) => {
    if (!best.has(count) || size(loss[trial]) < size(best.get(count))) {
      best.set(count, loss[trial]);
    }
  });
  const places = [...best.keys()].sort((a, b) => a - b), most = Math.max(1, ...places);
  const front = new Set(frontOf(best).map(([count]) => count));
  const drawn = forRatios([...places.map((count) => best.get(count)), limit]).slice(0, -1);
  const said = `What tuning tried: ${kept.length} sets of nodes to keep float32; ${chosen} were chosen, for a ${metric} of at most ${limit}`;
  const nearest = (at) => places.reduce((a, b) => (Math.abs(b - at) < Math.abs(a - at) ? b : a));
  const { readout, hook } = reader("Point to read.", (at) => [`${nearest(at)} nodes float32: ${metric} ${best.get(nearest(at))}`], () => undefined);
  const dots = (color) => ({ show: true, size: 7, fill: () => colorNamed(color), stroke: () => colorNamed(color) });
  const picture = plotOf(said, {
    height: 300,
    scales: { x: { time: false, range: () => [-0.04 * most, 1.04 * most] }, y: { ...logarithmic(), range: (plot, low, high) => uPlot.rangeLog(Math.min(low ?? limit, limit), Math.max(high ?? limit, limit), 10, true) } },
    axes: [axisNamed("nodes that stay float32", brief, { size: 28, incrs: WHOLE }), sideAxis(metric, brief)],
    series: [{}, { paths: () => null, points: dots("other") },
      { stroke: () => colorNamed("low"), width: 1.5, spanGaps: true, points: dots("low") },
      { paths: () => null, points: { ...dots("found"), size: 14, fill: "transparent", width: 2 } }],
    padding: [8, 14, 0, 0],
    cursor: { drag: { x: false, y: false }, points: { show: false } },
    hooks: { setCursor: [hook], draw: [(plot) => drawLimit(plot, "y", limit, "limit")] },
  }, [places, drawn.map((found, row) => (front.has(places[row]) ? null : found)), drawn.map((found, row) => (front.has(places[row]) ? found : null)),
    drawn.map((found, row) => (places[row] === chosen ? found : null))]);
  return figureOf(`What tuning tried: the best ${metric} for each number of nodes kept float32`,
    legendOf(["low", "the best trades"], ["other", "worse than a smaller set"], ["found", "chosen"]), picture, readout);
}

/** Show the pictures for which there are data. */
function showCharts() {
  const { histograms, errors, search } = data.pictures, place = document.getElementById("charts");
  if (histograms.counts.some((counts) => counts.length)) {
    place.append(spreadChart());
  }
  if (errors.node.length) {
    place.append(errorChart());
  }
  if (search) {
    document.getElementById("tuning").append(searchChart());
  }
  document.getElementById("no-pictures").hidden = place.children.length > 0 || Boolean(search);
}
