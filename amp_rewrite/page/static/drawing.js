// Drawing on the canvas: boxes by precision, folders, edges with their casts.

const MARKS = ["", "16", "32", "16/32"];
const PRECISION_NAMES = ["no float32", data.precision, FLOAT32, "both"];
const PRECISION_STYLES = ["other", "low", "kept", "mixed"];

/** The colors of the page's style, read again when it changes. */
let colors = {};

function readColors() {
  const style = getComputedStyle(document.documentElement);
  const names = ["page", "ink", "soft", "line", "raised", "group-fill", "found", "link"];
  for (const kind of PRECISION_STYLES) {
    names.push(kind, `${kind}-fill`);
  }
  colors = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

function rounded(context, x, y, width, height, radius) {
  context.beginPath();
  context.roundRect(x, y, width, height, radius);
}

/**
 * Draw a layout.
 *
 * `scene` has what is to be seen (left, top, right, bottom, scale), what is selected, and `found`:
 * by item how many nodes are found in it, or null if nothing is looked for.
 */
function drawLayout(context, layout, left, top, scene) {
  for (const edge of layout.edges) {
    drawEdge(context, edge, left, top, scene);
  }
  for (const [item, box] of layout.boxes) {
    const place = { x: left + box.x, y: top + box.y, width: box.width, height: box.height };
    const hidden = place.x > scene.right || place.y > scene.bottom
      || place.x + place.width < scene.left || place.y + place.height < scene.top;
    if (hidden) {
      continue;
    }
    context.globalAlpha = scene.found && !scene.found[item] ? 0.3 : 1;
    if (box.inner) {
      drawFolder(context, item, place, scene);
      context.globalAlpha = 1;
      drawLayout(context, box.inner, place.x + box.inset, place.y + SIZE.header + SIZE.padding, scene);
    } else {
      drawBox(context, item, place, scene);
    }
    context.globalAlpha = 1;
  }
}

function drawFolder(context, item, place, scene) {
  rounded(context, place.x, place.y, place.width, place.height, 10);
  context.fillStyle = colors["group-fill"];
  context.fill();
  outline(context, item, scene, colors.line, 1.5);
  context.fillStyle = colors.ink;
  context.font = BOLD;
  context.textBaseline = "middle";
  const said = fitted(context, headerOf(item), place.width - 20);
  context.fillText(said, place.x + 10, place.y + SIZE.header / 2 + 2);
}

function drawBox(context, item, place, scene) {
  const kind = PRECISION_STYLES[precisionOf(item)];
  if (isGroup(item)) {
    rounded(context, place.x + 4, place.y + 4, place.width, place.height, 8);
    context.fillStyle = colors.line;
    context.fill();
  }
  rounded(context, place.x, place.y, place.width, place.height, isEnd(item) ? SIZE.height / 2 : 6);
  context.fillStyle = colors[`${kind}-fill`];
  context.fill();
  outline(context, item, scene, colors[kind], 1.5);
  if (scene.scale < 0.35) {
    return; // nobody could read it
  }
  drawText(context, item, place);
  if (isGroup(item)) {
    drawShares(context, item, place);
  }
}

function outline(context, item, scene, color, width) {
  const selected = item === scene.selected;
  // Only what is looked for has the color of what is found: frames of all folders around it hide it.
  const isFound = scene.found && scene.found[item] && !open.has(item);
  context.strokeStyle = selected ? colors.ink : isFound ? colors.found : color;
  context.lineWidth = selected ? 3.5 : isFound ? 3 : width;
  context.stroke();
}

function drawText(context, item, place) {
  const [first, second] = linesOf(item);
  const mark = isEnd(item) ? "" : MARKS[precisionOf(item)];
  context.textBaseline = "middle";
  context.fillStyle = colors.soft;
  context.font = '700 9px system-ui, "DejaVu Sans", sans-serif';
  const markWidth = mark ? context.measureText(mark).width + 6 : 0;
  context.fillText(mark, place.x + place.width - markWidth, place.y + 10);
  context.fillStyle = colors.ink;
  context.font = BOLD;
  const folded = isGroup(item) ? "\u25b8 " : "";
  context.fillText(fitted(context, folded + first, place.width - 14 - markWidth), place.x + 8, place.y + 13);
  context.font = FONT;
  context.fillStyle = colors.soft;
  context.fillText(fitted(context, second, place.width - 16), place.x + 8, place.y + 28);
}

/** Draw on a folder what its nodes compute in, as shares of its lower edge. */
function drawShares(context, item, place) {
  const counts = countsOf[item - firstGroup];
  const total = counts.reduce((a, b) => a + b, 0);
  let x = place.x + 6;
  for (const kind of [LOW, MIXED, KEPT, OTHER]) {
    const width = total ? ((place.width - 12) * counts[kind]) / total : 0;
    context.fillStyle = colors[PRECISION_STYLES[kind]];
    context.fillRect(x, place.y + place.height - 4, width, 3);
    x += width;
  }
}

function drawEdge(context, edge, left, top, scene) {
  const points = edge.points.map((point) => ({ x: left + point.x, y: top + point.y }));
  const xs = points.map((point) => point.x), ys = points.map((point) => point.y);
  if (Math.min(...xs) > scene.right || Math.max(...xs) < scene.left
    || Math.min(...ys) > scene.bottom || Math.max(...ys) < scene.top) {
    return;
  }
  context.globalAlpha = scene.found ? 0.35 : 1;
  const touches = edge.from === scene.selected || edge.to === scene.selected;
  context.strokeStyle = touches ? colors.ink : colors.soft;
  context.lineWidth = touches ? 2.2 : Math.min(3, 0.9 + Math.log2(edge.count) / 3);
  context.beginPath();
  context.moveTo(points[0].x, points[0].y);
  for (let i = 1; i < points.length - 1; i++) {
    const middle = { x: (points[i].x + points[i + 1].x) / 2, y: (points[i].y + points[i + 1].y) / 2 };
    context.quadraticCurveTo(points[i].x, points[i].y, middle.x, middle.y);
  }
  const end = points[points.length - 1];
  context.lineTo(end.x, end.y);
  context.stroke();
  drawArrow(context, points[points.length - 2], end);
  if (edge.toLow || edge.toFloat32) {
    drawCast(context, edge, points[Math.floor((points.length - 1) / 2)], scene);
  }
  context.globalAlpha = 1;
}

function drawArrow(context, before, end) {
  const angle = Math.atan2(end.y - before.y, end.x - before.x);
  context.fillStyle = context.strokeStyle;
  context.beginPath();
  context.moveTo(end.x, end.y);
  context.lineTo(end.x - 7 * Math.cos(angle - 0.4), end.y - 7 * Math.sin(angle - 0.4));
  context.lineTo(end.x - 7 * Math.cos(angle + 0.4), end.y - 7 * Math.sin(angle + 0.4));
  context.fill();
}

/** Draw the mark of the casts on an edge: to which type, and how many if more than one. */
function drawCast(context, edge, at, scene) {
  const casts = edge.toLow + edge.toFloat32;
  const target = edge.toLow && edge.toFloat32 ? "" : edge.toLow ? "\u219216" : "\u219232";
  const kind = edge.toLow && edge.toFloat32 ? "mixed" : edge.toLow ? "low" : "kept";
  const said = `${target}${casts > 1 ? ` \u00d7${casts}` : ""}`.trim() || `${casts} casts`;
  context.font = '700 9px system-ui, "DejaVu Sans", sans-serif';
  const width = scene.scale < 0.35 ? 12 : context.measureText(said).width + 10;
  rounded(context, at.x - width / 2, at.y - 7, width, 14, 7);
  context.fillStyle = colors[`${kind}-fill`];
  context.strokeStyle = colors[kind];
  context.lineWidth = 1.5;
  context.fill();
  context.stroke();
  if (scene.scale >= 0.35) {
    context.fillStyle = colors.ink;
    context.textBaseline = "middle";
    context.fillText(said, at.x - width / 2 + 5, at.y + 0.5);
  }
}
