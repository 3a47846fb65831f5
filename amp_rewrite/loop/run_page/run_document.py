"""From the data of runs to one HTML file, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from amp_rewrite.loop.run_page.run_data import checked
from amp_rewrite.page.document import PLOTS, SHARED_SCRIPTS, SHARED_STYLES, document, static

STYLES = ("run_page.css",)

SCRIPTS = (
    *("runs.js", "curves.js", "tables.js", "differences.js"),
    *("refresh.js", "run_page.js"),
)
"""The page's own scripts, in the order in which they rely on each other."""

_SHARED = "amp_rewrite.page"

_BEGIN = '<script type="application/json" id="data">'
_END = "</script>"


def render(data: Mapping[str, Any]) -> str:
    """Return the page that shows runs.

    Args:
        data: "runs", what `run_data` made of each; and "source", where a page that is served asks
            for newer ones, or None for a file, which is loaded again.
    """
    own = [static(__package__ or "", name) for name in STYLES]
    return document(
        static(__package__ or "", "run_page.html"),
        data,
        title="amp-rewrite run",
        styles=[*(static(_SHARED, name) for name in SHARED_STYLES), *own],
        scripts={
            "library": [static(_SHARED, PLOTS)],
            "program": [
                static(__package__ or "", SCRIPTS[0]),
                *(static(_SHARED, name) for name in SHARED_SCRIPTS),
                *(static(__package__ or "", name) for name in SCRIPTS[1:]),
            ],
        },
        connects=None if data.get("source") is None else "'self'",
    )


def read_runs(page: str) -> list[dict[str, Any]]:
    """Return the data of the runs in a page that `render` made; none of any other text."""
    _, begin, rest = page.partition(_BEGIN)
    if not begin:
        return []
    try:
        data = json.loads(rest.partition(_END)[0])
    except (ValueError, RecursionError):
        return []
    runs = data.get("runs") if isinstance(data, dict) else None
    found = [checked(run) for run in runs] if isinstance(runs, list) else []
    return [run for run in found if run is not None]
