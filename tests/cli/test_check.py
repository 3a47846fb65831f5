"""`amp-rewrite check`."""

from __future__ import annotations

import json
from pathlib import Path

import low_models
import onnx
import pytest

from amp_rewrite.cli.common import DONE, IN_DOUBT, WRONG_USAGE
from amp_rewrite.cli.main import main


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


def test_a_dangerous_model_is_in_doubt_by_the_rules_alone(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = model.with_name("report.json")
    assert run("check", model, "--no-run", "--report", report) == IN_DOUBT
    out = capsys.readouterr().out
    assert "risk: Pow" in out
    assert out.startswith("In doubt: 10 nodes are unsafe in float16 for cuda by the rules")
    assert json.loads(report.read_text())["ok"] is False
    fixed = f"{model.stem}.repaired.onnx"
    assert out.endswith(f"  amp-rewrite repair {model} -o {fixed} --verify\n")


def test_the_repair_has_the_options_of_the_check(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("check", model, "--no-run", "--target", "webgpu", "--deny-op", "Pow")
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.endswith(" --target webgpu --deny-op Pow --verify")


def test_a_model_in_float32_is_safe(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wide = model.with_name("wide.onnx")
    words = ("--precision", "float32", "--no-keep-io-types", "--quiet")
    assert run("convert", model, "-o", wide, *words) == DONE
    assert run("check", wide) == DONE
    out = capsys.readouterr().out
    assert "Passed: the model computes in float32" in out
    assert "amp-rewrite repair" not in out


def test_data_and_no_run_exclude_each_other(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("check", model, "--no-run", "--provider", "cpu") == WRONG_USAGE
    assert run("check", model, "--no-run", "--data", "x.npz") == WRONG_USAGE
    assert "--data has no effect with --no-run" in capsys.readouterr().err


def test_a_float32_form_takes_no_options_of_a_rewrite(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--precision", "float32", "--deny-op", "Pow")
    assert run("convert", model, "-o", model.with_name("w.onnx"), *words) == WRONG_USAGE
    assert "--deny-op has no effect with --precision float32" in capsys.readouterr().err
    assert not model.with_name("w.onnx").exists()
