"""`amp-rewrite measure-costs`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from amp_rewrite.cli import main
from amp_rewrite.numerics.measure import timing


def left(words: str, *more: Path) -> object:
    """Return the exit status of the command line."""
    with pytest.raises(SystemExit) as leaving:
        main([*words.split(), *map(str, more)])
    return leaving.value.code


def test_a_table_is_written_and_completed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(timing, "RUNS", 2)
    path = tmp_path / "costs.json"
    words = "measure-costs --provider cpu --sessions 1 --only"
    assert left(f"{words} gather -o", path) == 0
    assert "2 rates and 2 casts of onnxruntime" in capsys.readouterr().out
    table = json.loads(path.read_text("utf-8"))
    table["costs"][0]["call"] = 12345.0
    path.write_text(json.dumps(table), "utf-8")
    assert left(f"{words} softmax --quiet -o", path) == 0
    assert capsys.readouterr().out == ""
    again = json.loads(path.read_text("utf-8"))
    assert {row["family"] for row in again["costs"]} == {"gather", "softmax"}
    assert any(row["call"] == 12345.0 for row in again["costs"])
    assert again["casts"] == table["casts"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--provider NoSuchProvider", "the execution provider is not available"),
        ("--provider cpu --only nonsense", "there is no such family of operators"),
        ("--provider cpu --precision float8", "float8"),
    ],
)
def test_what_cannot_be_measured_is_one_line(
    words: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime")
    assert left(f"measure-costs {words} -o", tmp_path / "costs.json") == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
    assert not list(tmp_path.iterdir())
