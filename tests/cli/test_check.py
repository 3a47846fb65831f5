"""`amp-rewrite check`."""

from __future__ import annotations

import json
from pathlib import Path

import low_models
import onnx
import pytest
from rewrite_text import parse

from amp_rewrite.cli.common import DONE, NOT_STRICT, WRONG_USAGE
from amp_rewrite.cli.main import main
from amp_rewrite.targets import TARGETS


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return the file of a model that is wrong in float16."""
    path = tmp_path / "model.onnx"
    onnx.save(low_models.t5_encoder(), path)
    return path


def run(*words: object) -> int:
    """Run a command; return its exit status."""
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    return int(left.value.code or 0)


def test_a_dangerous_model_is_told_with_status_3(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = model.with_name("report.json")
    assert run("check", model, "--no-run", "--report", report) == NOT_STRICT
    out = capsys.readouterr().out
    assert "risk: Pow" in out
    assert "Unsafe: 10 nodes are unsafe in float16" in out
    assert json.loads(report.read_text())["ok"] is False


def test_a_model_in_float32_is_safe(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wide = model.with_name("wide.onnx")
    words = ("--precision", "float32", "--no-keep-io-types", "--quiet")
    assert run("convert", model, "-o", wide, *words) == DONE
    assert run("check", wide) == DONE
    assert "Safe: the model computes in float32" in capsys.readouterr().out


def test_data_and_no_run_exclude_each_other(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("check", model, "--no-run", "--provider", "cpu") == WRONG_USAGE
    assert run("check", model, "--no-run", "--data", "x.npz") == WRONG_USAGE
    assert "--no-run runs nothing" in capsys.readouterr().err


def test_a_float32_form_takes_no_options_of_a_rewrite(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--precision", "float32", "--deny-op", "Exp")
    assert run("convert", model, "-o", model.with_name("w.onnx"), *words) == WRONG_USAGE
    assert "--deny-op has no effect with --precision float32" in capsys.readouterr().err
    assert not model.with_name("w.onnx").exists()


def test_a_page_is_written_and_never_over_the_model(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = model.with_name("page.html")
    assert run("check", model, "--no-run", "--html", page) == NOT_STRICT
    assert "unsafe in float16" in page.read_text("utf-8")
    assert run("check", model, "--no-run", "--html", model) == WRONG_USAGE
    assert "the page would overwrite a model" in capsys.readouterr().err


def test_every_target_gets_a_row(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = model.with_name("report.json")
    words = ("--target", "All", "--no-run", "--report", report)
    assert run("check", model, *words) == NOT_STRICT
    out = capsys.readouterr().out
    told = {row["target"]: row for row in json.loads(report.read_text())["targets"]}
    assert set(told) == {target.name for target in TARGETS} - {"schema"}
    assert all(name in out for name in told)
    assert "right on no target, by the rules alone; not run" in out
    assert told["cuda"]["share"] > 0
    assert "Pow" in told["cuda"]["why_not"]
    assert told["openvino"]["why_not"] == "the target does not compute in float16"
    assert told["openvino"]["share"] is None


def test_a_right_model_is_right_where_its_kernels_are(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, made = model.with_name("small.onnx"), model.with_name("made.onnx")
    text = "g (float[2, 8] x) => (float[2, 8] y) { m = MatMul (x, x)  y = Relu (m) }"
    source.write_bytes(parse(text.replace("[2, 8]", "[8, 8]")).SerializeToString())
    assert run("convert", source, "-o", made, "--target", "any", "--quiet") == DONE
    assert run("check", made, "--target", "all") == DONE
    out = capsys.readouterr().out
    assert "right on cuda" in out
    row = next(line for line in out.splitlines() if line.startswith("webgpu"))
    assert row.split() == ["webgpu", "yes", "100.0%", "in", "float16", "yes"]


def test_all_targets_are_for_one_model(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", model.parent, "--target", "all") == WRONG_USAGE
    assert "--target all is for one model; found a folder" in capsys.readouterr().err
    assert run("convert", model, "-o", "x.onnx", "--target", "all") == WRONG_USAGE
    assert "unknown target; found 'all'" in capsys.readouterr().err
