"""Links inside the documentation lead somewhere, and every page can be reached."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import PAGES, README, ROOT, anchors_of, blocks_of, links_of, name_of


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_a_file_and_an_anchor_that_exist(page: Path) -> None:
    for link in links_of(page):
        if link.startswith(("https://", "http://")):
            continue
        target, _, anchor = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        assert file.is_relative_to(ROOT), link
        assert file.exists(), link
        if anchor:
            assert anchor in anchors_of(file), link


def test_the_readme_leads_to_every_page() -> None:
    linked = {link.partition("#")[0] for link in links_of(README)}
    assert {name_of(page) for page in PAGES} - {"README.md"} <= linked


@pytest.mark.parametrize("page", [p for p in PAGES if p.parent == ROOT / "docs"], ids=name_of)
def test_a_page_begins_with_the_question_that_it_answers(page: Path) -> None:
    title, first = page.read_text("utf-8").split("\n\n")[:2]
    assert title.startswith("# ")
    assert "?" in first


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_paths_of_the_checkout_exist(page: Path) -> None:
    folders = "amp_rewrite|benchmarks|docs|examples|lists|tests|tools"
    made = {block.value for block in blocks_of(page) if block.directive == "file"}
    for path in re.findall(rf"`(?:python )?((?:{folders})/[\w./-]*)", page.read_text("utf-8")):
        assert path in made or (ROOT / path).exists(), path


@pytest.mark.parametrize("folder", ["amp_rewrite", "benchmarks", "examples", "tests", "tools"])
def test_what_code_cites_of_the_documentation_exists(folder: str) -> None:
    for source in (ROOT / folder).rglob("*.py"):
        text = re.sub(r"\s+", " ", source.read_text("utf-8"))
        for name, section in re.findall(r"\b([a-z_]+\.md)\b(?:,? section (\d+))?", text):
            page = ROOT / "docs" / name
            assert page.exists(), f"{source}: {name}"
            assert f"\n## {section}" in page.read_text("utf-8"), f"{source}: {name} {section}"
