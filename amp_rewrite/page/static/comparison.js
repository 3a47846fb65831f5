// Another file beside this one: what both are, where their nodes differ, and the graph in either's colors.

/** Return the nodes whose results have one type here and another there. */
function nodesThatDiffer(isWanted) {
  const { ours, theirs } = data.comparison, found = [];
  for (let node = 0; node < nodeCount; node++) {
    if (ours[node] !== NONE && isWanted(text(ours[node]), theirs[node] === NONE ? null : text(theirs[node]))) {
      found.push(node);
    }
  }
  return found;
}

function showComparison() {
  const { comparison } = data;
  document.getElementById("comparison").hidden = !comparison;
  document.getElementById("painted-by").hidden = !comparison;
  if (!comparison) {
    return;
  }
  const lowHere = nodesThatDiffer((ours) => ours !== FLOAT32).length;
  const lowThere = nodesThatDiffer((_, theirs) => theirs !== null && theirs !== FLOAT32).length;
  const verdict = (ok) => (ok === null ? "not run" : ok ? "passed" : "failed");
  const rows = [
    ["", named(`this file: ${data.overview.file}`), named(`other file: ${comparison.name}`)],
    ["Accuracy", verdict(data.overview.holds), comparison.failure ? `cannot be run: ${comparison.failure}` : verdict(comparison.ok)],
    ["Largest error of an output", said(data.overview.worst), said(comparison.worst)],
    ["Bytes", said(data.overview.size), said(comparison.size)],
    ["Values in 16 bits", lowHere.toLocaleString("en"), lowThere.toLocaleString("en")],
  ];
  const [head, ...body] = rows.map(([name, ...cells], row) => make("tr", {}, row ? make("th", { scope: "row" }, name) : make("td"),
    ...cells.map((cell) => (row ? make("td", {}, cell) : make("th", { scope: "col" }, cell)))));
  document.getElementById("comparison-table").append(make("thead", {}, head), make("tbody", {}, ...body));
  document.getElementById("other-failures").append(...comparison.said.map((line) => make("li", {}, line)));
  const groups = [
    ["16-bit here, float32 in the other file", (ours, theirs) => ours !== FLOAT32 && theirs === FLOAT32],
    ["float32 here, 16-bit in the other file", (ours, theirs) => ours === FLOAT32 && theirs !== null && theirs !== FLOAT32],
    ["missing in the other file", (_, theirs) => theirs === null],
  ].map(([name, isWanted]) => [name, nodesThatDiffer(isWanted)]);
  for (const [name, found] of groups.filter(([, nodesFound]) => nodesFound.length)) {
    document.getElementById("differing").append(make("button", { type: "button", onclick: () => showFound(found) }, `${found.length.toLocaleString("en")} ${name}`));
  }
  const choice = document.getElementById("painted");
  choice.append(make("option", { value: "ours" }, data.overview.file), make("option", { value: "theirs" }, comparison.name));
  choice.onchange = () => paintBy(choice.value === "ours" ? nodes.precision : comparison.precision);

  function said(number) {
    return number === null || number === undefined ? "\u2013" : number.toLocaleString("en", { maximumSignificantDigits: Number.isInteger(number) ? 15 : 3 });
  }
}

/** Mark some nodes in the graph, and go there. */
function showFound(found) {
  searchBox.value = "";
  press(NONE);
  mark(found, true);
  document.getElementById("graph").scrollIntoView({ block: "start" });
  goTo(1);
}
