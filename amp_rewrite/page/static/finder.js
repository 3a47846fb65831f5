// Finding nodes: by a text in names and operators, or by the reason of their precision.

const finder = { found: [], at: NONE, cause: NONE };
const searchBox = document.getElementById("search");

/** Mark nodes as found, in the graph and in the folders around them. */
function mark(found, chosen = false) {
  finder.found = found.filter((item) => parentOf[itemAt(item)] !== NONE);
  finder.at = NONE;
  view.found = null;
  if (found.length || searchBox.value || finder.cause !== NONE || chosen) {
    view.found = new Int32Array(itemCount);
    for (const item of finder.found) {
      view.found[itemAt(item)]++;
      for (const folder of foldersAround(itemAt(item))) {
        view.found[folder]++;
      }
    }
  }
  sayMatches();
  redraw();
}

function sayMatches() {
  const { found, at } = finder, count = found.length;
  const said = at === NONE ? `${count} found` : `${at + 1} of ${count}`;
  document.getElementById("matches").textContent = view.found ? said : "";
  document.getElementById("previous").disabled = document.getElementById("next-match").disabled = !count;
}

/** Go to another of the nodes that were found, around the end to the beginning. */
function goTo(step) {
  const count = finder.found.length;
  if (count) {
    finder.at = finder.at === NONE ? (step > 0 ? 0 : count - 1) : (finder.at + step + count) % count;
    select(itemAt(finder.found[finder.at]));
    center(itemAt(finder.found[finder.at]));
    sayMatches();
  }
}

/** Find what has a text in its name or module or is an operator of that name, whatever the case. */
function search(wanted) {
  const sought = wanted.trim().toLowerCase();
  press(NONE);
  if (!sought) {
    return mark([]);
  }
  const matches = data.strings.map((string) => string.toLowerCase().includes(sought));
  const found = [];
  for (let item = 0; item < firstGroup; item++) {
    const names = isEnd(item) ? [ends.name[item - nodeCount]] : [nodes.name[item], nodes.module[item], nodes.op[item]];
    if (names.some((number) => number !== NONE && matches[number])) {
      found.push(item);
    }
  }
  mark(found);
}

/** Return the nodes that have a cause. */
function nodesOf(cause) {
  const found = [];
  for (let node = 0; node < nodeCount; node++) {
    const low = nodes.precision[node] !== KEPT;
    if (text(nodes.cause[node]) === cause.reason && low === cause.low) {
      found.push(node);
    }
  }
  return found;
}

/** Show which filter is in force. */
function press(number) {
  finder.cause = number;
  for (const element of document.querySelectorAll("[data-cause]")) {
    element.setAttribute("aria-pressed", String(Number(element.dataset.cause) === number));
  }
}

/** Filter by a cause; the same one again ends it. */
function filterBy(number) {
  searchBox.value = "";
  press(finder.cause === number ? NONE : number);
  mark(finder.cause === NONE ? [] : nodesOf(data.overview.causes[number]));
}

function causeButton(number, action) {
  const cause = data.overview.causes[number];
  const element = make("button", { type: "button", onclick: action },
    make("span", { className: "count" }, cause.count.toLocaleString("en")), " ",
    make("span", {}, `${cause.said} (${cause.reason})`), " ",
    make("span", { className: "operators" }, cause.operators));
  element.dataset.cause = String(number);
  element.setAttribute("aria-pressed", "false");
  return make("li", {}, element);
}

function listenToFinder() {
  data.overview.causes.forEach((cause, number) => {
    document.getElementById(cause.low ? "low-causes" : "kept-causes").append(causeButton(number, () => filterBy(number)));
  });
  searchBox.addEventListener("input", () => search(searchBox.value));
  searchBox.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      goTo(event.shiftKey ? -1 : 1);
    }
  });
  document.getElementById("previous").onclick = () => goTo(-1);
  document.getElementById("next-match").onclick = () => goTo(1);
  document.addEventListener("keydown", (event) => {
    const typing = event.target instanceof HTMLInputElement;
    if (event.key === "Escape") {
      if (event.target === searchBox) {
        searchBox.blur();
      }
      searchBox.value = "";
      press(NONE);
      mark([]);
    } else if (typing || event.ctrlKey || event.metaKey || event.altKey) {
      return;
    } else if (event.key === "/") {
      event.preventDefault();
      searchBox.focus();
    } else if (event.key === "n") {
      goTo(1);
    } else if (event.key === "p") {
      goTo(-1);
    }
  });
}
