"""docs/api.md is what the docstrings say now."""

from __future__ import annotations

import importlib.util
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "make_api_docs.py"


def test_the_api_reference_is_current() -> None:
    spec = importlib.util.spec_from_file_location("make_api_docs", TOOL)
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert tool.PAGE.read_text("utf-8") == tool.page(), "run python tools/make_api_docs.py"
