"""`convert --html`: a page, its evidence, and what is refused."""

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


def test_convert_writes_the_page_of_what_it_wrote(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    model, low, page = folder / "model.onnx", folder / "low.onnx", folder / "page.html"
    given = ("--html", page, "--data", folder / "data.npz", "--no-stress")
    assert run(capsys, "convert", model, "-o", low, *given)[0] == 0
    data = data_of(page)
    assert data["overview"]["holds"] is True
    assert low.exists()


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
