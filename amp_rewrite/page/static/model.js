"use strict";
// The data of the page, and what can be asked of them.
//
// Nodes, the ends of the model and folders share one numbering, in this order; they are "items".

const OTHER = 0, LOW = 1, KEPT = 2, MIXED = 3;
const TO_LOW = 1, TO_FLOAT32 = 2;
const NONE = -1;

const data = JSON.parse(document.getElementById("data").textContent);
const { nodes, variables, groups, ends, edges } = data;

const nodeCount = nodes.name.length;
const firstGroup = nodeCount + ends.name.length;
const itemCount = firstGroup + groups.label.length;
const ROOT = firstGroup;

/** Return the string of a number, "" for none. */
function text(number) {
  return number === NONE ? "" : data.strings[number];
}

function isGroup(item) {
  return item >= firstGroup;
}

function isEnd(item) {
  return item >= nodeCount && item < firstGroup;
}

/** Return the node whose graphs are in a folder, NONE if there is none. */
function ownerOf(item) {
  return isGroup(item) ? groups.owner[item - firstGroup] : NONE;
}

/** Return the node that an item stands for: itself, or the owner of a folder; or NONE. */
function nodeOf(item) {
  return item < nodeCount ? item : ownerOf(item);
}

/** By item: the folder that it is in; NONE for the root and for what is not drawn. */
const parentOf = new Int32Array(itemCount).fill(NONE);
/** By node: the item that stands for it, which is a folder if it has graphs inside. */
const itemOfNode = Int32Array.from({ length: nodeCount }, (_, node) => node);
/** By folder: what is in it, in execution order. */
const membersOf = groups.label.map(() => []);
/** By folder: how many nodes compute in what, at any depth. */
const countsOf = groups.label.map(() => [0, 0, 0, 0]);
/** By node: what it computes in, in the file whose colors are shown. */
const precisions = nodes.precision;
/** By folder: the edges between its members, those of what is inside them lifted. */
const edgesOf = groups.label.map(() => new Map());
/** By node or end: the nodes and ends that feed it, and those that it feeds. */
const producersOf = Array.from({ length: firstGroup }, () => []);
const consumersOf = Array.from({ length: firstGroup }, () => []);

/** Yield the folders around an item, the innermost first. */
function* foldersAround(item) {
  for (let at = parentOf[item]; at !== NONE; at = parentOf[at]) {
    yield at;
  }
}

/** Return an item's name: that of a node is whole, that of a folder its last part. */
function nameOf(item) {
  if (isGroup(item)) {
    return text(groups.label[item - firstGroup]);
  }
  return isEnd(item) ? text(ends.name[item - nodeCount]) : text(nodes.name[item]);
}

/** Return the last part of a node's name; a number belongs to the part in front of it. */
function shortName(item) {
  const name = nameOf(item);
  if (isGroup(item) || isEnd(item)) {
    return name;
  }
  const separator = name.replace(/^\/+|\/+$/g, "").includes("/") ? "/" : ".";
  const parts = name.split(separator).filter(Boolean);
  const last = parts.pop() ?? name;
  return parts.length && /^\d+$/.test(last) ? parts.pop() + separator + last : last;
}

/** Return what an item computes in; of a folder, what all of its nodes with floats do. */
function precisionOf(item) {
  if (isEnd(item)) {
    return OTHER;
  }
  if (!isGroup(item)) {
    return precisions[item];
  }
  const [, low, kept, mixed] = countsOf[item - firstGroup];
  if (mixed || (low && kept)) {
    return MIXED;
  }
  return low ? LOW : kept ? KEPT : OTHER;
}

/** Fill the tables above. */
function buildTree() {
  groups.parent.forEach((parent, group) => {
    parentOf[firstGroup + group] = parent === NONE ? NONE : firstGroup + parent;
    if (groups.owner[group] !== NONE) {
      itemOfNode[groups.owner[group]] = firstGroup + group;
    }
  });
  nodes.group.forEach((group, node) => {
    parentOf[node] = group === NONE ? NONE : firstGroup + group;
  });
  ends.group.forEach((group, end) => {
    parentOf[nodeCount + end] = firstGroup + group;
  });
  const first = new Int32Array(itemCount).fill(itemCount);
  for (let node = 0; node < nodeCount; node++) {
    first[node] = node;
    for (const folder of foldersAround(node)) {
      countsOf[folder - firstGroup][precisions[node]]++;
      first[folder] = Math.min(first[folder], node);
    }
  }
  for (let item = 0; item < itemCount; item++) {
    const isOwner = item < nodeCount && itemOfNode[item] !== item;
    if (parentOf[item] !== NONE && !isOwner) {
      membersOf[parentOf[item] - firstGroup].push(item);
    }
  }
  membersOf.forEach((members) => members.sort((a, b) => first[a] - first[b] || a - b));
}

/** Return the path of folders from the root to an item, the item at its end. */
function pathTo(item) {
  return [...[...foldersAround(item)].reverse(), item];
}

function itemAt(nodeOrEnd) {
  return nodeOrEnd < nodeCount ? itemOfNode[nodeOrEnd] : nodeOrEnd;
}

/** Lift each edge to the innermost folder that both of its ends are in. */
function buildEdges() {
  edges.from.forEach((from, number) => {
    const to = edges.to[number];
    producersOf[to].push(from);
    consumersOf[from].push(to);
    const left = pathTo(itemAt(from)), right = pathTo(itemAt(to));
    let depth = 0;
    while (left[depth + 1] !== undefined && left[depth + 1] === right[depth + 1]) {
      depth++;
    }
    if (left[depth + 1] === undefined || right[depth + 1] === undefined) {
      return; // one is inside the other
    }
    const lifted = edgesOf[left[depth] - firstGroup];
    const key = `${left[depth + 1]} ${right[depth + 1]}`;
    const known = lifted.get(key) ?? { from: left[depth + 1], to: right[depth + 1], count: 0, toLow: 0, toFloat32: 0 };
    known.count++;
    known.toLow += edges.cast[number] === TO_LOW;
    known.toFloat32 += edges.cast[number] === TO_FLOAT32;
    lifted.set(key, known);
  });
}

buildTree();
buildEdges();
