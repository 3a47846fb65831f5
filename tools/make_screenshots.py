"""Make the pictures of the report page in docs/: four models of the corpus in a browser.

    python tools/make_screenshots.py [FOLDER OF THE MODELS]

It needs playwright and a Chromium that is installed (`apt install chromium`), and the corpus that
the tests download.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

import amp_rewrite as amp
from amp_rewrite.page.evidence import Evidence, measured, sizes_of
from amp_rewrite.page.render import write_page
from amp_rewrite.report.next_steps import Names

ROOT = Path(__file__).resolve().parent.parent
WINDOW = {"width": 1180, "height": 660}


@dataclass(frozen=True)
class Shot:
    """One picture.

    Attributes:
        model: The model of the corpus.
        part: The part of the page that is shown.
        scheme: "light" or "dark".
        action: What is done before, in JavaScript.
    """

    model: str
    part: str
    scheme: str = "light"
    action: str = ""


SHOTS = (
    Shot("minilm_l3", "verdict"),
    Shot("silero_v6", "graph", "dark"),
    Shot("ppocrv4_det", "pictures"),
    Shot(
        "magika",
        "graph",
        action="showNode(nodes.op.findIndex((op) => text(op) === 'GlobalMaxPool'))",
    ),
)


def write(model: Path, page: Path) -> None:
    """Write the page of a model, verified on made-up inputs."""
    result = amp.rewrite(model)
    verification = amp.verify(model, result.model, stress=False)
    names = Names(model.name, f"{model.stem}.fp16.onnx")
    sizes = sizes_of(model, result, None)
    evidence = Evidence(names, sizes, verification, measured(model, result, None))
    write_page(page, result, result.report, evidence)


def show(page: Page, shot: Shot) -> None:
    """Bring what is to be seen into the window."""
    page.evaluate(f"document.getElementById('{shot.part}').scrollIntoView()")
    if shot.action:
        page.evaluate(shot.action)
    page.wait_for_timeout(300)


def main(corpus: Path) -> None:
    """Make all pictures."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        chromium = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for shot in SHOTS:
            html = Path(folder) / f"{shot.model}.html"
            write(corpus / f"{shot.model}.onnx", html)
            scheme = "dark" if shot.scheme == "dark" else "light"
            page = browser.new_page(
                viewport={"width": WINDOW["width"], "height": WINDOW["height"]},
                color_scheme=scheme,
            )
            page.goto(html.as_uri())
            page.wait_for_selector("html[data-ready]")
            show(page, shot)
            picture = ROOT / "docs" / f"page_{shot.model}.png"
            page.screenshot(path=picture)
            page.close()
            print(f"{picture.relative_to(ROOT)}: {picture.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else ROOT / ".cache" / "corpus" / "models")
