// Chains of reasons, as `amp-rewrite explain` tells them.

const FLOAT32 = "float32";

/** By row of the variables, the node that it belongs to. */
const nodeOfVariable = new Int32Array(variables.name.length);
for (let node = 0; node < nodeCount; node++) {
  nodeOfVariable.fill(node, nodes.start[node], nodes.start[node + 1]);
}

/** Return the rows of a node's type variables. */
function variablesOf(node) {
  const rows = [];
  for (let row = nodes.start[node]; row < nodes.start[node + 1]; row++) {
    rows.push(row);
  }
  return rows;
}

/**
 * Return the variables from one to the origin of its mark, the first one left out.
 *
 * What no row describes is told by its name: { row: NONE, name }.
 */
function chainOf(row) {
  const path = [];
  const seen = new Set([row]);
  let current = row;
  while (variables.from[current] !== NONE && !seen.has(variables.because[current])) {
    const next = variables.because[current];
    path.push({ row: next, name: next === NONE ? text(variables.from[current]) : text(nodes.name[nodeOfVariable[next]]) });
    if (next === NONE) {
      break;
    }
    seen.add(next);
    current = next;
  }
  return path;
}

function detailOf(row) {
  return variables.detail[row] === NONE ? "" : `: ${text(variables.detail[row])}`;
}

/** Return why a variable has its type: the phrase, the origin with its reason, the way between. */
function reasonOf(row) {
  const path = chainOf(row), said = text(variables.said[row]);
  if (!path.length) {
    return said + detailOf(row);
  }
  if (variables.detail[row] !== NONE) {
    return `${said}${detailOf(row)}, by way of ${path.map((step) => step.name).join(", ")}`;
  }
  const origin = path[path.length - 1];
  const note = origin.row === NONE ? "" : ` (${text(variables.said[origin.row]).replace(/^it is on the /, "")}${detailOf(origin.row)})`;
  const through = path.slice(0, -1).reverse().map((step) => step.name).join(", ");
  return `${said} ${origin.name}${note}${through ? ` through ${through}` : ""}`;
}

/** Return the lines that explain a node, one for each of its type variables. */
function explain(node) {
  const name = text(nodes.name[node]), scope = text(nodes.scope[node]), module = text(nodes.module[node]);
  const what = `(${text(nodes.op[node])}${module ? ` of ${module}` : ""}${scope ? ` in ${scope}` : ""})`;
  const rows = variablesOf(node);
  if (!rows.length) {
    return [`${name} ${what} has no float32 type variable: left as it is`];
  }
  return rows.map((row) => {
    const title = rows.length > 1 ? `${name}/${text(variables.name[row])}` : name;
    const type = text(variables.type[row]);
    const bound = variables.bound[row] === NONE ? "" : `; it cannot exceed ${text(variables.bound[row])}`;
    const part = text(nodes.part[node]);
    const group = part && !text(variables.detail[row]).includes(part) ? `; part of ${part}` : "";
    return `${title} ${what} ${type === FLOAT32 ? "stays" : "becomes"} ${type}: ${reasonOf(row)}${bound}${group}`;
  });
}
