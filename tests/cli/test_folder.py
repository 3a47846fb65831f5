"""`convert` of a folder, and the status with which it leaves."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import model_folders as folders
import onnx
import onnx.parser
import pytest

from amp_rewrite.cli.common import DONE, FAILED, WRONG_USAGE
from amp_rewrite.cli.main import main


def run(*words: object) -> int:
    """Run a command; return its exit status."""
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    return int(left.value.code or 0)


def test_convert_writes_a_folder_and_one_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = folders.optimum(tmp_path / "in"), tmp_path / "out"
    report = tmp_path / "report.json"
    assert run("convert", source, "-o", target, "--report", report) == DONE
    out = capsys.readouterr().out
    assert "2 connections with the same type on both sides" in out
    verdict, head, *rows = out.splitlines()
    assert verdict == f"Not verified: 2 of 2 models changed; wrote {target}"
    assert head.split() == ["model", "result", "16-bit", "nodes", "casts", "verdict"]
    assert rows[1].startswith(
        "encoder_model.onnx         100 % of the arithmetic in float16  3 of 3"
    )
    models = [target / "decoder_model_merged.onnx", target / "encoder_model.onnx"]
    command = shlex.join(["amp-rewrite", "check", *map(str, models)])
    assert out.endswith(f"next: Check the converted models.\n  {command}\n")
    assert len(json.loads(report.read_text())["models"]) == 2
    assert (target / "tokenizer" / "tokenizer.json").exists()


def test_a_dry_run_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = folders.optimum(tmp_path / "in")
    assert run("convert", source, "--dry-run") == DONE
    assert "nothing was written" in capsys.readouterr().out
    assert os.listdir(tmp_path) == ["in"]


def test_lengths_to_name_are_said_of_each_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = "g (float[4,n] x, float[n,4] w) => (float[4,4] y) { y = MatMul(x, w) }"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 18]> {body}')
    onnx.save(model, tmp_path / "m.onnx")
    assert run("convert", tmp_path, "--dry-run", "--target", "webgpu") == DONE
    said = "m.onnx: sums of unknown length stay float32; name it: --dim n=512"
    assert said in capsys.readouterr().out.splitlines()


def test_the_second_model_fails_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = folders.optimum(tmp_path / "in"), tmp_path / "out"
    (source / "encoder_model.onnx").write_bytes(b"\x08\x07")
    assert run("convert", source, "-o", target, "--quiet") == FAILED
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "amp-rewrite: encoder_model.onnx: failed:" in captured.err
    assert os.listdir(tmp_path) == ["in"]


def test_a_model_that_fails_is_suggested_to_be_converted_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = folders.optimum(tmp_path / "in"), tmp_path / "out"
    (source / "encoder_model.onnx").write_bytes(b"\x08\x07")
    assert run("convert", source, "-o", target) == FAILED
    command = f"amp-rewrite convert {shlex.quote(str(source / 'encoder_model.onnx'))} -o "
    assert command in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("convert", "IN", "-o", "OUT", "--data", "x.npz"), "; write --data MODEL=x.npz"),
        (("convert", "IN", "-o", "OUT", "--data", "x=y"), "data names no model of the folder"),
        (("convert", "IN", "-o", "OUT", "--html", "p.html"), "--html is about one model"),
        (("convert", "IN"), "missing -o OUTPUT"),
        (("convert", "IN", "-o", "OUT", "--report", "IN/r.json"), "the report would lie in"),
        (
            ("convert", "IN", "-o", "OUT", "--rtol", "1"),
            "--rtol has no effect without verification",
        ),
        (
            ("convert", "IN", "-o", "OUT", "--precision", "float32", "--deny-op", "Relu"),
            "--deny-op has no effect with --precision float32",
        ),
        (("convert", "IN", "-o", "OUT", "--keep-io", "nobody"), "--keep-io names nothing"),
        (("convert", "IN/encoder_model.onnx", "-o", "OUT", "--replace"), "--replace is only for a"),
    ],
)
def test_what_a_folder_cannot_have_is_refused_in_one_line(
    tmp_path: Path, words: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folders.optimum(tmp_path / "in")
    places = {"IN": str(tmp_path / "in"), "OUT": str(tmp_path / "out")}
    given = [word.replace("IN/", f"{places['IN']}/") for word in words]
    assert run(*(places.get(word, word) for word in given)) == WRONG_USAGE
    error = capsys.readouterr().err
    assert expected in error
    assert error.count("\n") == 1
    assert os.listdir(tmp_path) == ["in"]


def test_data_of_one_model_verify_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target, data = folders.optimum(tmp_path / "in"), tmp_path / "out", tmp_path / "d.npz"
    assert run("inputs", source / "encoder_model.onnx", "-o", data, "--quiet") == DONE
    assert run("convert", source, "-o", target, "--data", f"encoder_model={data}") == DONE
    rows = capsys.readouterr().out.splitlines()[2:4]
    assert [row.split("  ")[-1].strip() for row in rows] == ["not verified", "passed"]
    assert run("convert", source, "-o", tmp_path / "n", "--data", "encoder_model=none") == FAILED
    assert "none: no such data" in capsys.readouterr().err


def test_large_models_are_said_to_take_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = folders.optimum(tmp_path / "in")
    with (source / "encoder_model.onnx_data").open("wb") as weights:
        weights.truncate(6 << 30)  # takes no room on the disk
    assert run("convert", source, "--dry-run") == DONE
    assert capsys.readouterr().err == "More than ten seconds for 6.4 GB of model\n"
