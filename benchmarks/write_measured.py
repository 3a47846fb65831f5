"""Write the tables of README.md and docs/measured.md from the results in benchmarks/results/.

    python benchmarks/bench.py page             writes the pages
    python benchmarks/bench.py page --check     exits with 1 if a page is not what would be written

A table stands between two comments, `<!-- figures: NAME -->` and `<!-- end of figures -->`.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from results import RESULTS, Results
from tables import TABLES, origin, summary

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", ROOT / "docs" / "measured.md")
_FIGURES = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)


def figures(name: str) -> str:
    """Return the text of a table: that of the README, or a whole one with its origin."""
    if name == "summary":
        return summary(Results.read(RESULTS / "rewrite.json").rows)
    results = Results.read(RESULTS / f"{name}.json")
    return f"{origin(results)}\n\n{TABLES[name](results.rows)}"


def with_figures(page: str) -> str:
    """Return the text of a page with the tables that the results give."""
    return _FIGURES.sub(lambda found: f"{found[1]}\n{figures(found[2])}\n\n{found[3]}", page)


def main(arguments: list[str]) -> int:
    """Write or check the pages."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args(arguments).check
    outdated = [p for p in PAGES if with_figures(p.read_text("utf-8")) != p.read_text("utf-8")]
    for page in outdated:
        if check:
            print(f"{page.name} is not what benchmarks/results/ gives", file=sys.stderr)
        else:
            page.write_text(with_figures(page.read_text("utf-8")), "utf-8")
            print(f"wrote {page.name}")
    return 1 if check and outdated else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
