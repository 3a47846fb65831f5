// The view of the graph: what is open, where one looks, what is selected; mouse and keyboard.

const view = {
  canvas: document.getElementById("canvas"),
  layout: null,
  places: new Map(),
  x: 0,
  y: 0,
  scale: 1,
  selected: NONE,
  found: null,
  waiting: false,
  printing: false,
  onSelect: () => {},
};

const SCALES = { least: 0.02, most: 3, step: 1.2, legible: 0.6, printed: 2 };
/** Pixels of a side that every browser can draw. */
const LARGEST_CANVAS = 8192;
const MARGIN = 24;

/** How many boxes are open to begin with: what a look takes in, on a laptop and on a phone. */
const AT_FIRST = { wide: 24, narrow: 8 };

/** Lay out what is open; keep an item where it is on the screen, if one is given. */
function relayout(fixed = NONE) {
  const before = view.places.get(fixed);
  view.layout = layoutOf(ROOT);
  view.places = placesOf(view.layout);
  const after = view.places.get(fixed);
  if (before && after) {
    view.x += (before.x - after.x) * view.scale;
    view.y += (before.y - after.y) * view.scale;
  }
  redraw();
}

/** Draw with the next frame, once. */
function redraw() {
  if (!view.waiting) {
    view.waiting = true;
    requestAnimationFrame(draw);
  }
}

function draw() {
  view.waiting = false;
  if (view.printing) {
    return;
  }
  const { canvas, scale } = view, ratio = window.devicePixelRatio || 1;
  const { width, height } = canvas.getBoundingClientRect();
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.setTransform(ratio * scale, 0, 0, ratio * scale, ratio * view.x, ratio * view.y);
  const scene = {
    left: -view.x / scale,
    top: -view.y / scale,
    right: (width - view.x) / scale,
    bottom: (height - view.y) / scale,
    scale,
    selected: view.selected,
    found: view.found,
  };
  drawLayout(context, view.layout, 0, 0, scene);
}

/** Draw all that is open for the printer, which scales the picture to its page. */
function drawWhole() {
  view.printing = true;
  const { canvas, layout } = view, width = layout.width + 2 * MARGIN, height = layout.height + 2 * MARGIN;
  const scale = Math.min(SCALES.printed, LARGEST_CANVAS / Math.max(width, height));
  canvas.width = Math.ceil(width * scale);
  canvas.height = Math.ceil(height * scale);
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, MARGIN * scale, MARGIN * scale);
  const scene = { left: -MARGIN, top: -MARGIN, right: width, bottom: height, scale, selected: NONE, found: view.found };
  drawLayout(context, layout, 0, 0, scene);
}

/** Show all that is open; a graph that is too tall to be read this way, its beginning. */
function fit() {
  const { width, height } = view.canvas.getBoundingClientRect();
  const whole = Math.min((width - 2 * MARGIN) / view.layout.width, (height - 2 * MARGIN) / view.layout.height);
  view.scale = Math.max(SCALES.least, Math.min(1, whole));
  view.x = (width - view.layout.width * view.scale) / 2;
  view.y = Math.max(MARGIN, (height - view.layout.height * view.scale) / 2);
  redraw();
}

/** Show the beginning of the graph in a size that can be read, as wide as the view if that is one. */
function showBeginning() {
  fit();
  if (view.scale < 0.7) {
    const { width } = view.canvas.getBoundingClientRect();
    const wide = (width - MARGIN) / view.layout.width, first = membersOf[0].map((item) => view.places.get(item)).find(Boolean);
    view.scale = wide < SCALES.legible ? 0.9 : Math.min(0.9, wide);
    const middle = wide < SCALES.legible ? first.x + first.width / 2 : view.layout.width / 2;
    view.x = width / 2 - middle * view.scale;
    view.y = MARGIN - first.y * view.scale;
    redraw();
  }
}

function zoom(factor, x, y) {
  const scale = Math.max(SCALES.least, Math.min(SCALES.most, view.scale * factor));
  const box = view.canvas.getBoundingClientRect();
  const at = { x: x ?? box.width / 2, y: y ?? box.height / 2 };
  view.x = at.x - ((at.x - view.x) * scale) / view.scale;
  view.y = at.y - ((at.y - view.y) * scale) / view.scale;
  view.scale = scale;
  redraw();
}

/** Bring an item into the middle of the view, in a size that can be read. */
function center(item) {
  const place = view.places.get(item);
  const { width, height } = view.canvas.getBoundingClientRect();
  view.scale = Math.max(view.scale, 0.8);
  view.x = width / 2 - (place.x + place.width / 2) * view.scale;
  view.y = height / 2 - (place.y + Math.min(place.height, height / view.scale) / 2) * view.scale;
  redraw();
}

function isInView(item) {
  const place = view.places.get(item), { width, height } = view.canvas.getBoundingClientRect();
  const left = place.x * view.scale + view.x, top = place.y * view.scale + view.y;
  return left >= 0 && top >= 0 && left + place.width * view.scale <= width && top + Math.min(place.height, 60) * view.scale <= height;
}

/** Select an item, open what is around it, and bring it into view. */
function select(item, { move = true } = {}) {
  view.selected = item;
  if (item !== NONE && !view.places.has(item)) {
    reveal(item);
    relayout();
  }
  if (item !== NONE && move && (!isInView(item) || view.scale < 0.35)) {
    center(item);
  }
  redraw();
  view.onSelect(item);
}

/** Open a folder that is folded, or fold one that is open. */
function toggle(item) {
  if (!isGroup(item)) {
    return;
  }
  if (open.has(item)) {
    open.delete(item);
  } else {
    open.add(item);
  }
  relayout(item);
  view.onSelect(view.selected);
}

function foldAll() {
  open.clear();
  open.add(ROOT);
  relayout();
  if (view.selected !== NONE && !view.places.has(view.selected)) {
    select(NONE);
  }
  showBeginning();
}

/** Return the innermost item at a point of the canvas; the inside of an open folder is none. */
function itemAtPoint(x, y) {
  const at = { x: (x - view.x) / view.scale, y: (y - view.y) / view.scale };
  let hit = NONE;
  for (const [item, place] of view.places) {
    const inside = at.x >= place.x && at.x <= place.x + place.width && at.y >= place.y
      && at.y <= place.y + (open.has(item) ? SIZE.header : place.height);
    hit = inside ? item : hit;
  }
  return hit;
}

/** Return the nearest thing that can be seen and stands for a node or an end. */
function visible(nodeOrEnd) {
  const item = itemAt(nodeOrEnd);
  return view.places.has(item) ? item : [...foldersAround(item)].find((folder) => view.places.has(folder)) ?? NONE;
}

/** Return what feeds an item (or what it feeds) and can be seen. */
function neighbours(item, forward) {
  const parent = parentOf[item];
  const lifted = parent === NONE ? [] : [...edgesOf[parent - firstGroup].values()];
  const near = lifted.filter((edge) => (forward ? edge.from : edge.to) === item).map((edge) => (forward ? edge.to : edge.from));
  const node = nodeOf(item);
  const far = node === NONE && !isEnd(item) ? [] : (forward ? consumersOf : producersOf)[isEnd(item) ? item : node].map(visible);
  return [...near, ...far].filter((other) => other !== NONE && other !== item && view.places.has(other));
}

/** Return the next thing to the left or right, of those in the same folder. */
function beside(item, step) {
  const members = membersOf[parentOf[item] - firstGroup];
  return members[members.indexOf(item) + step] ?? NONE;
}

const MOVES = {
  ArrowUp: (item) => neighbours(item, false)[0],
  ArrowDown: (item) => neighbours(item, true)[0],
  ArrowLeft: (item) => beside(item, -1),
  ArrowRight: (item) => beside(item, 1),
};

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) {
    return;
  }
  const move = MOVES[event.key];
  if (move) {
    const target = view.selected === NONE ? membersOf[0][0] : move(view.selected);
    if (target !== undefined && target !== NONE) {
      select(target);
    }
  } else if (event.key === "Enter" || event.key === " ") {
    toggle(view.selected);
  } else if (event.key === "+" || event.key === "=") {
    zoom(SCALES.step);
  } else if (event.key === "-") {
    zoom(1 / SCALES.step);
  } else if (event.key === "0") {
    fit();
  } else {
    return;
  }
  event.preventDefault();
}

/** Let the mouse, or a finger, move the graph, select and open; two fingers zoom. */
function listenToPointer() {
  const { canvas } = view, down = new Map();
  let moved = false;
  canvas.addEventListener("pointerdown", (event) => {
    moved = down.size > 0;
    down.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    canvas.setPointerCapture(event.pointerId);
    canvas.classList.add("grabbing");
  });
  canvas.addEventListener("pointermove", (event) => {
    const last = down.get(event.pointerId);
    if (!last) {
      return;
    }
    const at = { x: event.offsetX, y: event.offsetY }, dx = at.x - last.x, dy = at.y - last.y;
    const other = [...down].find(([pointer]) => pointer !== event.pointerId)?.[1];
    if (!moved && Math.hypot(dx, dy) <= 3) {
      return;
    }
    moved = true;
    down.set(event.pointerId, at);
    if (other) {
      const apart = (one) => Math.max(1, Math.hypot(one.x - other.x, one.y - other.y));
      zoom(apart(at) / apart(last), (at.x + other.x) / 2, (at.y + other.y) / 2);
    }
    const share = other ? 0.5 : 1; // of two fingers each moves the middle by half
    view.x += dx * share;
    view.y += dy * share;
    redraw();
  });
  canvas.addEventListener("pointercancel", (event) => down.delete(event.pointerId));
  canvas.addEventListener("pointerup", (event) => {
    canvas.classList.remove("grabbing");
    down.delete(event.pointerId);
    const item = moved ? NONE : itemAtPoint(event.offsetX, event.offsetY);
    if (item !== NONE) {
      select(item, { move: false });
      toggle(item);
    }
  });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(Math.exp(-event.deltaY / 400), event.offsetX, event.offsetY);
  }, { passive: false });
}

/** Draw for the first time: with what is folded opened as long as all of it fits a look. */
function startView() {
  const most = view.canvas.clientWidth < 500 ? AT_FIRST.narrow : AT_FIRST.wide;
  for (let count = membersOf[0].length, folder = 1; folder < membersOf.length; folder++) {
    const parentIsOpen = open.has(parentOf[firstGroup + folder]);
    if (parentIsOpen && count + membersOf[folder].length <= most) {
      open.add(firstGroup + folder);
      count += membersOf[folder].length;
    }
  }
  relayout();
  showBeginning();
  listenToPointer();
  view.canvas.addEventListener("keydown", onKey);
  new ResizeObserver(redraw).observe(view.canvas);
  addEventListener("beforeprint", drawWhole);
  addEventListener("afterprint", () => {
    view.printing = false;
    redraw();
  });
}
