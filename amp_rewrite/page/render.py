"""From data to one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from amp_rewrite.page.document import document, static
from amp_rewrite.page.evidence import Evidence
from amp_rewrite.page.page_data import page_data
from amp_rewrite.rewriting.api import RewriteResult
from amp_rewrite.rewriting.report.rewrite_report import Report
from amp_rewrite.rewriting.report.write_text import write_text

LIBRARIES = ("vendor/dagre.min.js",)
"""The layout library, as its authors built it."""

STYLES = ("base.css", "page.css")

SCRIPTS = (
    *("model.js", "reasons.js", "layout.js", "drawing.js", "view.js", "elements.js"),
    *("panel.js", "finder.js", "overview.js", "page.js"),
)
"""The page's own scripts, in the order in which they rely on each other."""


def write_page(path: Path, result: RewriteResult, report: Report, evidence: Evidence) -> None:
    """Write the page of a rewrite, as a whole or not at all.

    Raises:
        SaveError: The file cannot be written.
    """
    write_text(path, render(page_data(result, report, evidence)))


def render(data: dict[str, Any]) -> str:
    """Return the page that shows data."""
    return document(
        _source("page.html"),
        data,
        title="amp-rewrite report",
        styles=[_source(name) for name in STYLES],
        scripts={
            "library": [_source(name) for name in LIBRARIES],
            "program": [_source(name) for name in SCRIPTS],
        },
    )


def _source(name: str) -> str:
    return static("amp_rewrite.page", name)
