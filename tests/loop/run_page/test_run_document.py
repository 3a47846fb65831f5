"""The page of a run as a file: data come back as they were, and nothing else is run or loaded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from run_pages import made_up

import amp_rewrite
from amp_rewrite.loop.run_page.run_document import SCRIPTS, STYLES, read_runs, render

STATIC = Path(amp_rewrite.__file__).parent / "loop" / "run_page" / "static"


def policy_of(page: str) -> str:
    found = re.search('http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("title", ["a", "</script><script>", "{{program}}", "&lt;", '"', "<!--"])
def test_runs_come_back_from_a_page(title: str) -> None:
    page = render({"runs": [made_up(title), made_up("b")], "source": None})
    assert [run["title"] for run in read_runs(page)] == [title, "b"]
    assert page.count("<script") == 3


@pytest.mark.parametrize(
    "page",
    [
        "",
        "<html></html>",
        '<script type="application/json" id="data">',
        '<script type="application/json" id="data">[]</script>',
        '<script type="application/json" id="data">{"runs": 1}</script>',
        '<script type="application/json" id="data">{"runs": [1]}</script>',
        '<script type="application/json" id="data">' + "[" * 100_000,
    ],
)
def test_another_text_holds_no_runs(page: str) -> None:
    assert read_runs(page) == []


def test_a_file_asks_for_nothing_and_a_page_that_is_served_its_server_alone() -> None:
    file = policy_of(render({"runs": [], "source": None}))
    served = policy_of(render({"runs": [], "source": "runs.json"}))
    assert file.startswith("default-src 'none'; ")
    assert served == f"{file}; connect-src 'self'"
    assert "unsafe" not in served
    assert "http" not in served


def test_every_script_and_style_is_in_the_page() -> None:
    assert {path.name for path in STATIC.glob("*.js")} == set(SCRIPTS)
    assert {path.name for path in STATIC.glob("*.css")} == set(STYLES)
