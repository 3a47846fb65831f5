// Pictures of numbers, as SVG: every one has a sentence that says the same.

/** Return what a power of two is called. */
function power(exponent) {
  return `2^${exponent}`;
}

/** Return the rows of a node's measured values. */
function histogramsOf(node) {
  return data.pictures.histograms.node.flatMap((owner, row) => (owner === node ? [row] : []));
}

/** By node, its error; undefined where verify did not look. */
const errorOf = new Map(data.pictures.errors.node.map((node, row) => [node, data.pictures.errors.distance[row]]));

/** Return how many elements of a measured value the low type cannot hold: too large, too small. */
function lostOf(row) {
  const { first, counts } = data.pictures.histograms, { largest, smallest } = data.pictures.range;
  let over = 0, under = 0;
  counts[row].forEach((count, bin) => {
    const exponent = first[row] + bin;
    over += exponent >= largest ? count : 0;
    under += exponent < smallest - 1 ? count : 0;
  });
  return { over, under };
}

/** Return the histogram of one value against the range of the low type. */
function histogramChart(row) {
  const { first, counts, value } = data.pictures.histograms, { largest, normal, smallest } = data.pictures.range;
  const width = 320, height = 130, floor = height - 22;
  const least = Math.min(first[row], Math.floor(Math.max(smallest, -40))) - 1;
  const most = Math.max(first[row] + counts[row].length, Math.min(Math.ceil(largest), 40)) + 1;
  const place = (exponent) => 8 + ((width - 16) * (exponent - least)) / (most - least);
  const tallest = Math.max(1, ...counts[row]);
  const bars = counts[row].map((count, bin) => {
    const exponent = first[row] + bin, outside = exponent >= largest || exponent < normal;
    const tall = count ? Math.max(2, ((floor - 16) * Math.log1p(count)) / Math.log1p(tallest)) : 0;
    return shape("rect", {
      class: outside ? "outside" : "bin", x: place(exponent), y: floor - tall,
      width: Math.max(1, place(exponent + 1) - place(exponent) - 0.5), height: tall,
    });
  });
  const limits = [largest, normal, smallest].filter((limit) => limit >= least && limit <= most).map((limit) =>
    shape("line", { class: "limit", x1: place(limit), x2: place(limit), y1: 10, y2: floor }));
  const { over, under } = lostOf(row);
  const said = `Magnitudes of ${text(value[row])} by power of two, from ${power(first[row])} to ${power(first[row] + counts[row].length)}; ${over} too large for ${data.precision}, ${under} too small`;
  return chart(width, height, said, ...bars, ...limits,
    shape("line", { class: "axis", x1: 8, x2: width - 8, y1: floor, y2: floor }),
    label(8, height - 7, power(least)), label(width - 8, height - 7, power(most), "end"));
}

/** Return all measured values, one column each, against the range of the low type. */
function spreadChart() {
  const { first, counts, node } = data.pictures.histograms, { largest, normal, smallest } = data.pictures.range;
  const width = 640, height = 300, floor = height - 24, side = 44;
  const filled = node.map((_, row) => row).filter((row) => counts[row].length);
  const least = Math.max(-60, Math.min(...filled.map((row) => first[row]), normal - 2));
  const most = Math.min(60, Math.max(...filled.map((row) => first[row] + counts[row].length), Math.min(largest, 60) + 1));
  const y = (exponent) => floor - ((floor - 8) * (Math.max(least, Math.min(most, exponent)) - least)) / (most - least);
  const columns = Math.min(filled.length, 400);
  const bars = [];
  for (let column = 0; column < columns; column++) {
    const rows = filled.slice(Math.floor((column * filled.length) / columns), Math.floor(((column + 1) * filled.length) / columns));
    const bottom = Math.min(...rows.map((row) => first[row]));
    const top = Math.max(...rows.map((row) => first[row] + counts[row].length));
    const x = side + ((width - side - 8) * column) / columns;
    const outside = top > largest || bottom < normal;
    const bar = shape("rect", {
      class: outside ? "outside" : "bin", x, y: y(top), width: Math.max(1, (width - side - 8) / columns - 0.4), height: Math.max(1, y(bottom) - y(top)),
    });
    bar.append(shape("title", {}, `${nameOf(node[rows[0]])}: ${power(bottom)} to ${power(top)}`));
    bar.addEventListener("click", () => showNode(node[rows[0]]));
    bars.push(bar);
  }
  const limits = [["largest", largest], ["least normal", normal], ["least", smallest]].filter(([, limit]) => limit >= least && limit <= most).flatMap(([name, limit]) => [
    shape("line", { class: "limit", x1: side, x2: width - 8, y1: y(limit), y2: y(limit) }),
    label(width - 10, y(limit) - 3, `${name} of ${data.precision}`, "end"),
  ]);
  const said = `The magnitudes of ${filled.length} values in execution order, as powers of two, against the range of ${data.precision}`;
  return chart(width, height, said, ...bars, ...limits, label(side - 4, y(most) + 10, power(Math.round(most)), "end"),
    label(side - 4, floor, power(Math.round(least)), "end"), label(side, height - 8, "execution order \u2192"));
}

/** Return a scale for numbers from 0 on whose ratios count. */
function logScale(numbers, top, bottom) {
  const positive = numbers.filter((number) => typeof number === "number" && number > 0);
  const least = Math.log10(Math.min(...positive, 1e-1)), most = Math.log10(Math.max(...positive, 1e-3));
  const span = Math.max(1e-9, most - least);
  const place = (number) => {
    const at = number === 0 ? least : typeof number === "number" ? Math.log10(number) : most;
    return bottom - ((bottom - top) * (Math.max(least, at) - least)) / span;
  };
  return { place, least: 10 ** least, most: 10 ** most };
}

/** Return the errors of the nodes in execution order. */
function errorChart() {
  const { node, distance } = data.pictures.errors;
  const width = 640, height = 300, floor = height - 24, side = 56;
  const scale = logScale(distance, 12, floor);
  const x = (row) => side + ((width - side - 8) * (row + 0.5)) / node.length;
  const points = distance.map((error, row) => `${x(row).toFixed(1)},${scale.place(error).toFixed(1)}`);
  const step = Math.max(1, Math.ceil(node.length / 800));
  const dots = [];
  for (let start = 0; start < node.length; start += step) {
    let worst = start;
    for (let row = start; row < Math.min(node.length, start + step); row++) {
      worst = scale.place(distance[row]) < scale.place(distance[worst]) ? row : worst;
    }
    const dot = shape("circle", { class: "dot", cx: x(worst), cy: scale.place(distance[worst]), r: node.length > 200 ? 2 : 3.5 });
    dot.append(shape("title", {}, `${nameOf(node[worst])}: ${distance[worst]}`));
    dot.addEventListener("click", () => showNode(node[worst]));
    dots.push(dot);
  }
  const said = `The error of the results of ${node.length} nodes in execution order, relative to their size, from ${scale.least.toPrecision(2)} to ${scale.most.toPrecision(2)}`;
  return chart(width, height, said, shape("polyline", { class: "curve", points: points.join(" ") }), ...dots,
    label(side - 4, 16, scale.most.toPrecision(2), "end"), label(side - 4, floor, scale.least.toPrecision(2), "end"),
    label(side, height - 8, "execution order \u2192"));
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
  const width = 640, height = 300, floor = height - 30, side = 56;
  const scale = logScale([...loss, limit], 12, floor), most = Math.max(1, ...kept);
  const x = (count) => side + 6 + ((width - side - 24) * count) / most;
  const best = new Map();
  kept.forEach((count, trial) => {
    if (!best.has(count) || scale.place(loss[trial]) > scale.place(best.get(count))) {
      best.set(count, loss[trial]);
    }
  });
  const dots = [...best].map(([count, found]) => {
    const dot = shape("circle", { class: "dot", cx: x(count), cy: scale.place(found), r: 3.5 });
    dot.append(shape("title", {}, `${count} nodes float32: ${metric} ${found}`));
    return dot;
  });
  const front = frontOf(best).map(([count, found]) => `${x(count).toFixed(1)},${scale.place(found).toFixed(1)}`);
  const picked = best.has(chosen) ? [shape("circle", { class: "chosen", cx: x(chosen), cy: scale.place(best.get(chosen)), r: 7 })] : [];
  const said = `What tuning tried: ${kept.length} sets of nodes to keep float32; ${chosen} were chosen, for a ${metric} of at most ${limit}`;
  return chart(width, height, said, shape("line", { class: "limit", x1: side, x2: width - 8, y1: scale.place(limit), y2: scale.place(limit) }),
    shape("polyline", { class: "curve", points: front.join(" ") }), ...dots, ...picked, label(side - 4, 16, scale.most.toPrecision(2), "end"), label(side - 4, floor, scale.least.toPrecision(2), "end"),
    label(side, height - 8, "0"), label(width - 8, height - 8, `${most} nodes stay float32`, "end"));
}

/** Show the pictures for which there are data. */
function showCharts() {
  const { histograms, errors, search } = data.pictures, place = document.getElementById("charts");
  if (histograms.counts.some((counts) => counts.length)) {
    place.append(figure(`Magnitudes of the values in float32, from the smallest to the largest; orange leaves the normal range of ${data.precision}`, spreadChart()));
  }
  if (errors.node.length) {
    place.append(figure("Relative error of every result along the graph; a step up is where it arises", errorChart()));
  }
  if (search) {
    place.append(figure(`What tuning tried: the best ${search.metric} for each number of nodes kept float32; the line is the limit`, searchChart()));
  }
  document.getElementById("no-pictures").hidden = place.children.length > 0;
}
