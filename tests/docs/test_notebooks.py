"""The notebooks of the documentation run as they are, and are stored without what they put out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pages import ROOT
from tools_installed import installed

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def name_of(path: Path) -> str:
    return path.stem


def cells_of(path: Path) -> list[dict[str, Any]]:
    return [c for c in json.loads(path.read_text("utf-8"))["cells"] if c["cell_type"] == "code"]


def test_there_are_three() -> None:
    assert list(map(name_of, NOTEBOOKS)) == ["measure", "rewrite", "train"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_nothing_that_it_put_out_is_stored(path: Path) -> None:
    for cell in cells_of(path):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_links_of_a_notebook_lead_to_a_page(path: Path) -> None:
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        for link in "".join(cell["source"]).split("](")[1:]:
            assert (path.parent / link.partition(")")[0].partition("#")[0]).exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_a_notebook_runs_and_shows_its_results(path: Path, tmp_path: Path) -> None:
    installed("nbclient")
    installed("ipykernel")
    import nbclient  # pyright: ignore[reportMissingImports] an extra
    import nbformat  # pyright: ignore[reportMissingImports] which it brings

    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    ).execute()
    put_out = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    shown = [output["data"].get("text/html", "") for output in put_out if "data" in output]
    assert put_out
    assert not any("<progress" in html for html in shown), "bars are gone in the end"
    assert not [o for o in put_out if o.get("name") == "stderr"]
