"""`report` and `convert --html`: a page, its evidence, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from page_models import BRANCHES
from rewriting import parse

from amp_rewrite.cli.main import main


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    onnx.save(parse(BRANCHES), tmp_path / "model.onnx")
    np.savez(tmp_path / "data.npz", x=np.ones((2, 4), np.float32), b=np.array(True))
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Return exit status, stdout and stderr of a command."""
    with pytest.raises(SystemExit) as done:
        main([str(a) for a in arguments])
    captured = capsys.readouterr()
    return int(done.value.code or 0), captured.out, captured.err


def data_of(page: Path) -> dict[str, Any]:
    found = re.search(r'id="data">(.*?)</script>', page.read_text("utf-8"), re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_report_writes_a_page_and_no_model(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    status, out, err = run(capsys, "report", folder / "model.onnx", "-o", folder / "page.html")
    assert (status, err) == (0, "")
    assert "of the arithmetic in float16" in out
    assert {p.name for p in folder.iterdir()} == {"model.onnx", "data.npz", "page.html"}
    assert data_of(folder / "page.html")["overview"]["holds"] is None


def test_report_takes_the_options_of_a_rewrite(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    page = folder / "page.html"
    run(capsys, "report", folder / "model.onnx", "-o", page, "--precision", "bfloat16")
    assert data_of(page)["precision"] == "bfloat16"


def test_data_are_measured_and_verified(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    page = folder / "page.html"
    given = ("--data", folder / "data.npz", "--quiet")
    assert run(capsys, "report", folder / "model.onnx", "-o", page, *given) == (0, "", "")
    data = data_of(page)
    assert data["overview"]["holds"] is True
    assert data["pictures"]["histograms"]["node"]
    assert data["pictures"]["errors"]["node"]


def test_a_rewritten_file_is_verified_and_weighed(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    model, low, page = folder / "model.onnx", folder / "low.onnx", folder / "page.html"
    run(capsys, "convert", model, "-o", low)
    run(capsys, "report", model, low, "-o", page)
    overview = data_of(page)["overview"]
    size = next(f["said"] for f in overview["facts"] if f["name"] == "Size")
    assert not size.startswith("about")
    assert overview["holds"] is True
    assert not any("other options" in remark for remark in overview["remarks"])
    assert run(capsys, "report", model, low, "-o", page, "--no-verify")[0] == 0
    assert data_of(page)["overview"]["holds"] is None


def test_a_file_that_other_options_made_is_told_apart(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    model, low, page = folder / "model.onnx", folder / "low.onnx", folder / "page.html"
    run(capsys, "convert", model, "-o", low, "--deny-node", "last")
    _, out, _ = run(capsys, "report", model, low, "-o", page, "--no-verify")
    assert "low.onnx was made with other options: 1 node of another type, first last" in out
    assert "other options" in data_of(page)["overview"]["remarks"][0]


def test_convert_writes_the_page_of_what_it_wrote(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    model, low, page = folder / "model.onnx", folder / "low.onnx", folder / "page.html"
    given = ("--html", page, "--data", folder / "data.npz", "--no-stress")
    assert run(capsys, "convert", model, "-o", low, *given)[0] == 0
    data = data_of(page)
    assert data["overview"]["holds"] is True
    assert data["pictures"]["histograms"]["node"]
    assert low.exists()


def test_convert_writes_the_page_of_a_dry_run_with_a_planned_size(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    model, low, page = folder / "model.onnx", folder / "low.onnx", folder / "page.html"
    assert run(capsys, "convert", model, "-o", low, "--html", page, "--dry-run")[0] == 0
    facts = data_of(page)["overview"]["facts"]
    assert next(f["said"] for f in facts if f["name"] == "Size").startswith("about ")
    assert not low.exists()


@pytest.mark.parametrize("page", ["model.onnx", "low.onnx", "report.json"])
def test_a_page_overwrites_no_model_and_no_report(
    page: str, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    before = (folder / "model.onnx").read_bytes()
    given = ("--report", folder / "report.json", "--html", folder / page)
    status, _, err = run(
        capsys, "convert", folder / "model.onnx", "-o", folder / "low.onnx", *given
    )
    assert status == 1
    assert "would overwrite a model or the report" in err
    assert (folder / "model.onnx").read_bytes() == before
    assert not (folder / "low.onnx").exists()


@pytest.mark.parametrize("page", ["model.onnx", "missing/page.html"])
def test_report_refuses_a_place_where_it_cannot_or_must_not_write(
    page: str, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    before = (folder / "model.onnx").read_bytes()
    status, out, err = run(capsys, "report", folder / "model.onnx", "-o", folder / page)
    assert (status, out, len(err.splitlines())) == (1, "", 1)
    assert (folder / "model.onnx").read_bytes() == before


def test_overlays_are_written_with_or_without_a_page(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    given = ("--model-explorer", folder / "o.json")
    assert run(capsys, "report", folder / "model.onnx", *given)[0] == 0
    assert json.loads((folder / "o.json").read_text("utf-8"))["name"] == "amp_rewrite precision"
    assert (folder / "o.reason.json").exists()
    assert not (folder / "page.html").exists()


def test_something_has_to_be_written(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    status, _, err = run(capsys, "report", folder / "model.onnx")
    assert (status, len(err.splitlines())) == (1, 1)
    assert "there is nothing to write" in err


def test_convert_notes_precision_and_reason_in_the_nodes(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    run(capsys, "convert", folder / "model.onnx", "-o", folder / "low.onnx", "--annotate")
    node = onnx.load(folder / "low.onnx").graph.node
    notes = {n.name: {e.key for e in n.metadata_props} for n in node}
    assert notes["enc/dot"] == {"amp_rewrite.precision", "amp_rewrite.reason"}
