"""Make the pictures of pages in docs/: models of the corpus, in a browser.

    python tools/make_screenshots.py [FOLDER OF THE MODELS]

It needs playwright, a Chromium that is installed (`apt install chromium`), and the corpus that the
tests download. It takes a few minutes.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which

from playwright.sync_api import Browser, sync_playwright

import amp_rewrite as amp
from amp_rewrite.page.overview import Evidence
from amp_rewrite.page.render import write_page
from amp_rewrite.rewriting.report.gains import sizes_of
from amp_rewrite.rewriting.report.next_steps import Names

ROOT = Path(__file__).resolve().parent.parent
LAPTOP, PHONE = (1180, 660), (390, 844)

SELECT = "showNode(nodes.op.findIndex((op) => text(op) === 'GlobalMaxPool'))"


@dataclass(frozen=True)
class Shot:
    """One picture.

    Attributes:
        picture: What it is called in docs/.
        page: The model of the corpus that the page is of.
        part: The part of the page that is shown.
        scheme: "light" or "dark".
        window: The size of the window.
        action: What is done before, in JavaScript.
    """

    picture: str
    page: str
    part: str
    scheme: str = "light"
    window: tuple[int, int] = LAPTOP
    action: str = ""


SHOTS = (
    Shot("page_minilm_l3", "minilm_l3", "verdict"),
    Shot("page_silero_v6", "silero_v6", "graph", "dark"),
    Shot("page_magika", "magika", "graph", action=SELECT),
    Shot("page_phone", "silero_v6", "graph", window=PHONE),
)


def write(model: Path, page: Path) -> None:
    """Write the page of a model, verified on made-up inputs."""
    result = amp.rewrite(model)
    names = Names(model.name, f"{model.stem}.fp16.onnx")
    evidence = Evidence(
        names,
        sizes_of(model, result.flat, result.plan, None),
        amp.verify(model, result.model, stress=False),
    )
    write_page(page, result, result.report, evidence)


def write_pages(corpus: Path, folder: Path, wanted: Sequence[str]) -> None:
    """Write the pages that pictures are made of."""
    for name in wanted:
        write(corpus / f"{name}.onnx", folder / f"{name}.html")


def take(browser: Browser, page_file: Path, shot: Shot) -> None:
    """Take one picture."""
    width, height = shot.window
    page = browser.new_page(
        viewport={"width": width, "height": height},
        color_scheme="dark" if shot.scheme == "dark" else "light",
        is_mobile=shot.window == PHONE,
        has_touch=shot.window == PHONE,
    )
    page.goto(page_file.as_uri())
    page.wait_for_selector("html[data-ready]")
    page.evaluate(f"document.getElementById('{shot.part}').scrollIntoView()")
    if shot.action:
        page.evaluate(shot.action)
    page.wait_for_timeout(300)
    picture = ROOT / "docs" / f"{shot.picture}.png"
    page.screenshot(path=picture)
    page.close()
    print(f"{picture.relative_to(ROOT)}: {picture.stat().st_size:,} bytes")


def main(corpus: Path) -> None:
    """Make all pictures."""
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        write_pages(corpus, folder, list(dict.fromkeys(shot.page for shot in SHOTS)))
        chromium = which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for shot in SHOTS:
            take(browser, folder / f"{shot.page}.html", shot)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else ROOT / ".cache" / "corpus" / "models")
