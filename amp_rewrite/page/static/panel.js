// What is selected, in words: reasons, numbers, and what is around it.

const panel = document.getElementById("panel");
const MOST_LISTED = 12;

function named(name) {
  return make("bdi", {}, name);
}

function button(said, action) {
  return make("button", { type: "button", onclick: action }, named(said));
}

/** Show a node wherever it is, and hand the keyboard to the graph. */
function showNode(node) {
  const item = itemAt(node);
  if (parentOf[item] === NONE) {
    return describe(item); // a Constant, which is not drawn
  }
  document.getElementById("graph").scrollIntoView({ block: "start" });
  select(item);
  view.canvas.focus({ preventScroll: true });
}

/** Describe an item in the panel, and say it to those who do not see the graph. */
function describe(item) {
  panel.replaceChildren();
  panel.scrollTop = 0;
  if (item === NONE) {
    panel.append(make("p", { className: "hint" }, "Select a box to see why it has its precision."));
    return;
  }
  const node = nodeOf(item);
  if (node !== NONE && !isEnd(item)) {
    describeNode(node);
  } else if (isEnd(item)) {
    describeEnd(item);
  }
  if (isGroup(item)) {
    describeFolder(item);
  }
  const said = isGroup(item) ? `${linesOf(item).join(", ")}, ${open.has(item) ? "open" : "folded"}` : linesOf(item).join(" ");
  document.getElementById("said").textContent = isEnd(item) ? said : `${said}, ${PRECISION_NAMES[precisionOf(item)]}`;
}

function describeNode(node) {
  const domain = text(nodes.domain[node]);
  panel.append(
    make("h3", {}, named(text(nodes.name[node]))),
    make("p", {}, make("span", { className: "chip" }, `${domain ? `${domain}.` : ""}${text(nodes.op[node])}`),
      make("span", { className: "chip" }, PRECISION_NAMES[nodes.precision[node]]),
      make("span", { className: "chip" }, `${text(nodes.list[node])} list`)),
  );
  if (data.functions[node] !== undefined) {
    panel.append(make("p", {}, `A function of the model, with ${data.functions[node]} nodes inside that stay as they are; --inline-functions opens it.`));
  }
  const lines = make("div", { id: "explanation" });
  for (const line of explain(node)) {
    lines.append(make("p", {}, line));
  }
  panel.append(lines);
  for (const row of variablesOf(node)) {
    describeChain(row);
  }
  describePorts("Reads", inputsOf(node));
  describePorts("Makes", outputsOf(node));
  describeAround("Fed by", producersOf[node]);
  describeAround("Feeds", consumersOf[node]);
}

/** Return the values that a node reads: [value, its type as it is read], NONE for one left out. */
function inputsOf(node) {
  const { inputs, inputStart } = data.ports, found = [];
  for (let slot = inputStart[node]; slot < inputStart[node + 1]; slot++) {
    const value = inputs[slot], cast = readThroughCast.get(slot);
    found.push([value, value === NONE ? "" : cast === undefined ? text(data.values.after[value]) : cast ? data.precision : FLOAT32]);
  }
  return found;
}

/** Return the values that a node makes: [value, its type after]. */
function outputsOf(node) {
  const { outputs, outputStart } = data.ports;
  return outputs.slice(outputStart[node], outputStart[node + 1]).map((value) => [value, text(data.values.after[value])]);
}

/** By place among the inputs of all nodes: whether a Cast makes it low (1) or float32 (0). */
const readThroughCast = new Map(data.ports.cast);

/** Show what a node reads or makes: name, shape, type before and after. */
function describePorts(title, ports) {
  const shown = ports.slice(0, MOST_LISTED).map(([value, after]) => {
    if (value === NONE) {
      return make("li", { className: "hint" }, "left out");
    }
    const { before, shape } = data.values, was = text(before[value]);
    const isSame = was === after || !was;
    const type = isSame ? after || was || "unknown type" : `${was} \u2192 ${after}`;
    const size = shape[value] === NONE ? "shape unknown" : text(shape[value]) || "scalar";
    return make("li", {}, named(text(data.values.name[value]) || "\u2013"),
      make("div", {}, `${size}, `, make("span", { className: isSame ? "" : "changed" }, type)));
  });
  if (!shown.length) {
    return;
  }
  if (ports.length > MOST_LISTED) {
    shown.push(make("li", {}, `and ${ports.length - MOST_LISTED} more`));
  }
  panel.append(make("h3", {}, title), make("ul", { className: "ports" }, ...shown));
}

/** List the chain of a reason, each step a button. */
function describeChain(row) {
  const path = chainOf(row);
  if (!path.length) {
    return;
  }
  const steps = path.map((step) => {
    const to = step.row === NONE ? NONE : nodeOfVariable[step.row];
    const said = to === NONE ? named(step.name) : button(step.name, () => showNode(to));
    const reason = step.row === NONE ? "" : ` ${text(variables.reason[step.row])}`;
    return make("li", {}, said, reason);
  });
  panel.append(make("h3", {}, "Reached from"), make("ol", { className: "chain" }, ...steps));
}

function describeAround(title, items) {
  const around = [...new Set(items)];
  if (!around.length) {
    return;
  }
  const list = make("ul", {}, ...around.slice(0, MOST_LISTED).map((item) => make("li", {}, button(nameOf(item), () => showNode(item)))));
  if (around.length > MOST_LISTED) {
    list.append(make("li", {}, `and ${around.length - MOST_LISTED} more`));
  }
  panel.append(make("h3", {}, title), list);
}

function describeEnd(item) {
  const kind = ends.output[item - nodeCount] ? "Output" : "Input";
  panel.append(make("h3", {}, `${kind} `, named(nameOf(item))));
  describeAround("Fed by", producersOf[item]);
  describeAround("Feeds", consumersOf[item]);
}

function describeFolder(item) {
  const counts = countsOf[item - firstGroup];
  const parts = [LOW, MIXED, KEPT, OTHER].filter((kind) => counts[kind]);
  panel.append(
    make("h3", {}, named(nameOf(item))),
    make("p", {}, ...parts.map((kind) => make("span", { className: "chip" }, `${counts[kind]} ${PRECISION_NAMES[kind]}`))),
    button(open.has(item) ? "Fold" : "Open", () => toggle(item)),
  );
}
