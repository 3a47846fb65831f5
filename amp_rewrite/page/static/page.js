// The page: everything is drawn once, and then answers to who looks at it.

function showLegend() {
  const legend = document.getElementById("legend");
  legend.replaceChildren();
  for (const kind of [LOW, KEPT, MIXED, OTHER]) {
    const sample = make("span", {}, MARKS[kind].slice(0, 2) || "\u00a0");
    sample.style.borderColor = `var(--${PRECISION_STYLES[kind]})`;
    sample.style.background = `var(--${PRECISION_STYLES[kind]}-fill)`;
    legend.append(make("li", {}, sample, PRECISION_NAMES[kind]));
  }
  legend.append(make("li", {}, "\u219216 \u219232 on a line: a Cast"));
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  readColors();
  redraw();
}

function startTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  document.documentElement.dataset.theme = dark.matches ? "dark" : "light";
  readColors();
  dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
  document.getElementById("theme").onclick = () => {
    setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  };
}

startTheme();
showOverview();
showLegend();
listenToFinder();
view.onSelect = describe;
startView();
describe(NONE);
document.getElementById("fold").onclick = foldAll;
document.getElementById("fit").onclick = fit;
document.getElementById("zoom-in").onclick = () => zoom(SCALES.step);
document.getElementById("zoom-out").onclick = () => zoom(1 / SCALES.step);
document.documentElement.dataset.ready = "true";
