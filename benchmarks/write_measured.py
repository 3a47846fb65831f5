"""Write the tables of README.md and docs/measured.md from the results in benchmarks/results/.

    python benchmarks/bench.py page             writes the pages
    python benchmarks/bench.py page --check     exits with 1 if a page is not what would be written

A table stands between two comments, `<!-- figures: NAME -->` and `<!-- end of figures -->`; a
picture is a file of its own beside the pages.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from pathlib import Path

from openvino_table import picture
from results import RESULTS, Results
from tables import TABLES, origin, summary

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", ROOT / "docs" / "measured.md")
PICTURES = {ROOT / "docs" / "openvino.svg": (picture, "openvino")}
"""Picture -> what draws it, and the results that it shows."""

_FIGURES = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)


def figures(name: str) -> str:
    """Return the text of a table: that of the README, or a whole one with its origin."""
    if name == "summary":
        return summary(Results.read(RESULTS / "rewrite.json").rows)
    results = Results.read(RESULTS / f"{name}.json")
    return f"{origin(results)}\n\n{TABLES[name](results.rows)}"


_WIDTH = 128
"""Columns of a page's sentences."""


def with_figures(page: str) -> str:
    """Return the text of a page with the tables that the results give."""
    return _FIGURES.sub(
        lambda found: f"{found[1]}\n{_wrapped(figures(found[2]))}\n\n{found[3]}", page
    )


def _wrapped(text: str) -> str:
    """Return a text whose sentences are as wide as those of the page; tables stay."""
    lines = text.split("\n")
    return "\n".join(
        line if line.startswith(("|", "!", "<", "```")) or len(line) <= _WIDTH else _filled(line)
        for line in lines
    )


def _filled(line: str) -> str:
    return textwrap.fill(line, _WIDTH, break_long_words=False, break_on_hyphens=False)


def contents() -> dict[Path, str]:
    """Return what every page and picture has to hold."""
    pages = {page: with_figures(page.read_text("utf-8")) for page in PAGES}
    pictures = {
        path: draw(Results.read(RESULTS / f"{name}.json").rows)
        for path, (draw, name) in PICTURES.items()
    }
    return pages | pictures


def main(arguments: list[str]) -> int:
    """Write or check the pages."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args(arguments).check
    outdated = {
        path: text
        for path, text in contents().items()
        if not path.exists() or path.read_text("utf-8") != text
    }
    for path, text in outdated.items():
        if check:
            print(f"{path.name} is not what benchmarks/results/ gives", file=sys.stderr)
        else:
            path.write_text(text, "utf-8")
            print(f"wrote {path.name}")
    return 1 if check and outdated else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
