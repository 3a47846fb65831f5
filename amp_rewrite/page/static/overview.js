// The first screen: the verdict, figures, causes, and what to try next.

const MOST_CAUSES = 6;

function showOverview() {
  const { headline, holds, facts, failures, doubts, remarks, next } = data.overview;
  document.title = `${data.model}: ${headline}`;
  document.getElementById("model-name").textContent = data.model;
  document.getElementById("rewrite").textContent = `to ${data.precision} for ${data.target}, opset ${data.opset}`;
  document.getElementById("tool").textContent = data.tool;
  const title = document.getElementById("headline");
  title.textContent = headline.charAt(0).toUpperCase() + headline.slice(1);
  title.className = holds === null ? "" : holds ? "good" : "bad";
  for (const fact of facts) {
    document.getElementById("facts").append(make("div", {}, make("dt", {}, fact.name),
      make("dd", { className: "main" }, fact.said), make("dd", { className: "more" }, fact.more)));
  }
  showLines("failures", failures);
  showLines("doubts", doubts);
  showLines("remarks", remarks);
  showKept();
  for (const step of next) {
    document.getElementById("next").append(make("li", {}, step.why, make("code", {}, step.command)));
  }
  document.getElementById("nothing-next").hidden = next.length > 0;
}

function showLines(place, lines) {
  const list = document.getElementById(place);
  list.hidden = !lines.length;
  list.append(...lines.map((line) => make("li", {}, line)));
}

/** List the commonest causes of float32; each leads to its nodes in the graph. */
function showKept() {
  const list = document.getElementById("kept");
  const kept = data.overview.causes.map((_, number) => number).filter((number) => !data.overview.causes[number].low);
  for (const number of kept.slice(0, MOST_CAUSES)) {
    list.append(causeButton(number, () => {
      filterBy(number);
      document.getElementById("graph").scrollIntoView({ block: "start" });
      view.canvas.focus({ preventScroll: true });
    }));
  }
  if (kept.length > MOST_CAUSES) {
    list.append(make("li", { className: "hint" }, `and ${kept.length - MOST_CAUSES} more, beside the graph`));
  }
  document.getElementById("nothing-kept").hidden = kept.length > 0;
}
