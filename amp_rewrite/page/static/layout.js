// Where things stand: each open folder is laid out by itself, by dagre, as one thing of the folder
// around it. What is folded is never laid out.

const SIZE = { height: 38, header: 26, padding: 14, least: 84, most: 210, gap: 16, columns: 8, mark: 34, longMark: 52, signs: 62 };

/** The folders that are open. */
const open = new Set([ROOT]);

const measuring = document.createElement("canvas").getContext("2d");
const FONT = '12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif';
const BOLD = `600 ${FONT}`;

/** Return a text that fits a width, cut where it does not. */
function fitted(context, said, width) {
  if (context.measureText(said).width <= width) {
    return said;
  }
  let least = 0, most = Math.min(said.length, 200);
  while (least < most) {
    const middle = Math.ceil((least + most) / 2);
    if (context.measureText(`${said.slice(0, middle)}\u2026`).width <= width) {
      least = middle;
    } else {
      most = middle - 1;
    }
  }
  return `${said.slice(0, least)}\u2026`;
}

/** Return the two lines on a box. */
function linesOf(item) {
  if (isEnd(item)) {
    return [ends.output[item - nodeCount] ? "output" : "input", nameOf(item)];
  }
  if (!isGroup(item)) {
    return [text(nodes.op[item]), shortName(item)];
  }
  const owner = ownerOf(item), count = countsOf[item - firstGroup].reduce((a, b) => a + b, 0);
  const inside = count === 0 ? `${membersOf[item - firstGroup].length} ends` : count === 1 ? "1 node" : `${count} nodes`;
  return owner === NONE ? [nameOf(item), inside] : [`${text(nodes.op[owner])} ${nameOf(item)}`, inside];
}

function boxOf(item) {
  measuring.font = BOLD;
  const [first, second] = linesOf(item);
  const width = Math.max(measuring.measureText(first).width, measuring.measureText(second).width);
  const room = isGroup(item) ? SIZE.signs : precisionOf(item) === MIXED ? SIZE.longMark : SIZE.mark;
  return { width: Math.min(SIZE.most, Math.max(SIZE.least, Math.ceil(width) + room)), height: SIZE.height };
}

/** Return what is written above an open folder. */
function headerOf(item) {
  const [label, inside] = linesOf(item);
  return `\u25be ${label}  (${inside})`;
}

function headerWidth(item) {
  measuring.font = BOLD;
  return Math.min(SIZE.most * 1.5, Math.ceil(measuring.measureText(headerOf(item)).width) + 24);
}

/**
 * Return the layout of a folder: boxes and edges, whose origin is its own upper left corner.
 *
 * A box has `inner`, a layout, if the thing is an open folder.
 */
function layoutOf(folder) {
  const members = membersOf[folder - firstGroup];
  const boxes = new Map();
  for (const item of members) {
    if (open.has(item)) {
      const inner = layoutOf(item);
      const width = Math.max(inner.width + 2 * SIZE.padding, headerWidth(item));
      const height = inner.height + SIZE.header + 2 * SIZE.padding;
      boxes.set(item, { width, height, inner, inset: (width - inner.width) / 2 });
    } else {
      boxes.set(item, boxOf(item));
    }
  }
  const lifted = [...edgesOf[folder - firstGroup].values()];
  return lifted.length ? layered(boxes, lifted) : inRows(boxes);
}

/** Lay out things that feed each other: in layers, from top to bottom. */
function layered(boxes, lifted) {
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: "TB", nodesep: SIZE.gap, ranksep: 26, edgesep: 8 });
  for (const [item, box] of boxes) {
    graph.setNode(String(item), { width: box.width, height: box.height });
  }
  for (const edge of lifted) {
    graph.setEdge(String(edge.from), String(edge.to), {});
  }
  dagre.layout(graph);
  for (const [item, box] of boxes) {
    const { x, y } = graph.node(String(item));
    box.x = x - box.width / 2;
    box.y = y - box.height / 2;
  }
  const drawn = lifted.map((edge) => ({ ...edge, points: graph.edge(String(edge.from), String(edge.to)).points }));
  const { width, height } = graph.graph();
  return { boxes, edges: drawn, width, height };
}

/** Lay out things that have nothing to do with each other: in rows. */
function inRows(boxes) {
  let x = 0, y = 0, column = 0, rowHeight = 0, width = 0;
  for (const box of boxes.values()) {
    if (column === SIZE.columns) {
      [x, y, column, rowHeight] = [0, y + rowHeight + SIZE.gap, 0, 0];
    }
    Object.assign(box, { x, y });
    x += box.width + SIZE.gap;
    width = Math.max(width, x - SIZE.gap);
    rowHeight = Math.max(rowHeight, box.height);
    column++;
  }
  return { boxes, edges: [], width, height: y + rowHeight };
}

/** Return the place of every thing that can be seen: item -> box with absolute coordinates. */
function placesOf(layout, left = 0, top = 0, found = new Map()) {
  for (const [item, box] of layout.boxes) {
    const place = { x: left + box.x, y: top + box.y, width: box.width, height: box.height };
    found.set(item, place);
    if (box.inner) {
      placesOf(box.inner, place.x + box.inset, place.y + SIZE.header + SIZE.padding, found);
    }
  }
  return found;
}

/** Open every folder around an item. */
function reveal(item) {
  for (const folder of foldersAround(item)) {
    open.add(folder);
  }
}
