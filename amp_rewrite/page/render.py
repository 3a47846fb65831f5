"""From data to one HTML file: styles, scripts and data are in it, and nothing else is loaded."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from amp_rewrite.page.overview import Evidence
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

_PLACE = re.compile(r"\{\{(\w+)\}\}")
"""Where the template has a place for a text."""

_ESCAPED = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}
"""Characters that could begin or end something in HTML or an old JavaScript; JSON has escapes."""


def write_page(path: Path, result: RewriteResult, report: Report, evidence: Evidence) -> None:
    """Write the page of a rewrite, as a whole or not at all.

    Raises:
        SaveError: The file cannot be written.
    """
    write_text(path, render(page_data(result, report, evidence)))


def render(data: dict[str, Any]) -> str:
    """Return the page that shows data, with nothing in it that a browser would load.

    The hashes of the texts stand in the policy, so that whatever a name in the data holds is never
    run.
    """
    style = "".join(map(_static, STYLES))
    programs = {
        "library": "\n".join(map(_static, LIBRARIES)),
        "program": "\n".join(map(_static, SCRIPTS)),
    }
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"style-src {_hash(style)}; script-src {' '.join(map(_hash, programs.values()))}"
    )
    parts = {"policy": policy, "style": style, "data": as_json(data), **programs}
    template = _static("document.html").replace("{{body}}", _static("page.html"))
    # One pass: what stands in the data is text, even if it looks like a place of the template.
    return _PLACE.sub(lambda place: parts[place[1]], template)


def as_json(data: Mapping[str, Any]) -> str:
    """Return data as JSON that may stand inside a script element of HTML."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPED)


def _static(name: str) -> str:
    return (files("amp_rewrite.page") / "static" / name).read_text("utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
