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
from rewrite_text import parse

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


def test_another_file_is_compared_node_by_node(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    page, other = folder / "page.html", folder / "other.onnx"
    given = ("--quiet", "--deny-node", "last")
    run(capsys, "convert", folder / "model.onnx", "-o", other, *given)
    status, _, err = run(
        capsys, "report", folder / "model.onnx", "-o", page, "--compare", other, "--quiet"
    )
    assert (status, err) == (0, "")
    data = data_of(page)
    found, names = data["comparison"], [data["strings"][n] for n in data["nodes"]["name"]]
    types = [
        (name, data["strings"][mine], data["strings"][theirs])
        for name, mine, theirs in zip(names, found["ours"], found["theirs"], strict=True)
        if mine != theirs
    ]
    assert types == [("last", "float16", "float32")]
    assert (found["name"], found["ok"], found["failure"]) == ("other.onnx", True, "")
    assert found["size"] == other.stat().st_size
    assert len(found["errors"]["node"]) > 5
    assert data["overview"]["holds"] is True


def test_a_file_that_cannot_be_run_is_compared_as_far_as_it_can_be_read(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    model = parse(BRANCHES)
    model.graph.node[0].domain = "com.another"  # an operator that no runtime here has
    model.opset_import.append(onnx.helper.make_opsetid("com.another", 1))
    onnx.save(model, folder / "other.onnx")
    page = folder / "page.html"
    given = ("-o", page, "--compare", folder / "other.onnx", "--quiet")
    status, _, err = run(capsys, "report", folder / "model.onnx", *given)
    assert (status, err) == (0, "")
    found = data_of(page)["comparison"]
    assert found["failure"]
    assert found["ok"] is None
    assert found["errors"]["node"] == []


def test_a_comparison_without_a_page_is_refused(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    given = ("--compare", folder / "model.onnx", "--model-explorer", folder / "o.json")
    status, _, err = run(capsys, "report", folder / "model.onnx", *given)
    assert status != 0
    assert "the page alone compares two files" in err
    given = ("--compare", folder / "missing.onnx", "-o", folder / "p.html")
    status, _, err = run(capsys, "report", folder / "model.onnx", *given)
    assert status != 0
    assert "missing.onnx: the file cannot be read" in err


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
    assert any("other options" in doubt for doubt in data_of(page)["overview"]["doubts"])


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
    assert status == 2
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
    assert (status, len(err.splitlines())) == (2, 1)
    assert "there is nothing to write" in err


def test_convert_notes_precision_and_reason_in_the_nodes(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    run(capsys, "convert", folder / "model.onnx", "-o", folder / "low.onnx", "--annotate")
    node = onnx.load(folder / "low.onnx").graph.node
    notes = {n.name: {e.key for e in n.metadata_props} for n in node}
    assert notes["enc/dot"] == {"amp_rewrite.precision", "amp_rewrite.reason"}


def test_the_page_and_the_terminal_say_the_same_of_a_file_that_was_written(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    page, low = folder / "page.html", folder / "low.onnx"
    model = folder / "model.onnx"
    status, out, _ = run(capsys, "convert", model, "-o", low, "--html", page, "--verify")
    assert status == 0
    overview = data_of(page)["overview"]
    assert overview["headline"] == out.splitlines()[1]
    share = low.stat().st_size / model.stat().st_size
    assert overview["headline"].endswith(f"{share:.0%} of the file size".replace("%", " %"))
    stress = next(line for line in overview["remarks"] if line.startswith("stress inputs ("))
    assert stress in out
    [casts] = [fact["more"] for fact in overview["facts"] if fact["name"] == "Casts"]
    assert casts.endswith(" per run")
    assert "unknown size" not in out


def test_a_report_has_the_bytes_of_casts_for_lengths_and_for_data(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    weights = ",".join(["0.5"] * 64)
    text = f"""g (float[N,8] x) => (float[N,8] y) <float[8,8] w = {{{weights}}}> {{
      m = MatMul(x, w) y = Exp(m) }}"""
    onnx.save(parse(text), tmp_path / "m.onnx")
    np.savez(tmp_path / "data.npz", x=np.ones((4, 8), np.float32))
    page = tmp_path / "page.html"
    for given in (("--dim", "N=4"), ("--data", tmp_path / "data.npz")):
        assert run(capsys, "report", tmp_path / "m.onnx", "-o", page, *given)[0] == 0
        [casts] = [f["more"] for f in data_of(page)["overview"]["facts"] if f["name"] == "Casts"]
        assert casts == "384 bytes per run"


def test_a_page_that_cannot_be_written_leaves_the_model_and_says_so(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = folder / f"{'p' * 249}.html"  # a name as long as may be: there is no room for a longer
    output = folder / "out.onnx"
    status, _, err = run(capsys, "convert", folder / "model.onnx", "-o", output, "--html", page)
    assert status == 1
    assert err.splitlines()[0] == f"wrote {output}"
    assert "the file cannot be written" in err.splitlines()[1]
    onnx.checker.check_model(str(output))
    assert not list(folder.glob("*.html"))
