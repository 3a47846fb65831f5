"""`amp-rewrite repair`."""

from __future__ import annotations

import json
from pathlib import Path

import low_models
import numpy as np
import onnx
import pytest
from rewrite_text import parse

from amp_rewrite.cli.common import DONE, FAILED, IN_DOUBT, NOT_STRICT, WRONG_USAGE
from amp_rewrite.cli.main import main


def run(*words: object) -> int:
    """Run a command; return its exit status."""
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    return int(left.value.code or 0)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return the file of a model of which the rules alone do not find all that is wrong."""
    path = tmp_path / "model.onnx"
    onnx.save(low_models.MODELS["nanochat_q4"](), path)
    np.savez(tmp_path / "batch.npz", allow_pickle=False, **low_models.feeds("nanochat_q4"))
    return path


def test_with_data_it_is_repaired_and_a_second_time_nothing_changes(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fixed, again, data = (model.with_name(n) for n in ("fixed.onnx", "again.onnx", "batch.npz"))
    report = model.with_name("report.json")
    words = ("--data", data, "--report", report, "--overflow", "keep")
    assert run("repair", model, "-o", fixed, *words) == DONE
    assert "raised because of data" in capsys.readouterr().out
    assert json.loads(report.read_text())["ok"] is True
    assert run("repair", fixed, "-o", again, "--data", data) == DONE
    assert "Nothing changed" in capsys.readouterr().out
    assert again.read_bytes() == fixed.read_bytes()


def test_what_fails_is_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, fixed, data = (tmp_path / n for n in ("low.onnx", "fixed.onnx", "batch.npz"))
    text = "g (float16[N,64] x) => (float16[N,8] y) { h = MatMul(x, w) y = Relu(h) }"
    low = parse(text)
    weight = np.full((64, 8), 400, np.float16)
    low.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(low, model)
    np.savez(data, allow_pickle=False, x=np.full((1, 64), 100, np.float16))
    assert run("repair", model, "-o", fixed, "--data", data) == IN_DOUBT  # the original is infinite
    assert "nothing was written" in capsys.readouterr().out
    assert run("repair", model, "-o", fixed, "--verify") == FAILED
    out = capsys.readouterr().out
    assert out.startswith("FAILED on stress inputs (nothing was compared on the others): ")
    assert out.splitlines()[0].endswith("; give --data")
    assert "nothing was written" in out
    assert not fixed.exists()


def test_a_file_that_ends_the_runtime_is_not_written_and_that_is_said_first(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "amp_rewrite.runtimes.ort.isolated_load._run_apart",
        lambda path, seconds: (-11, "onnxruntime 1.2\n"),
    )
    fixed = model.with_name("fixed.onnx")
    assert run("repair", model, "-o", fixed) == NOT_STRICT
    said = "FAILED: ONNX Runtime does not load the result: onnxruntime 1.2 ends with a "
    assert capsys.readouterr().out.startswith(said)
    assert not fixed.exists()
    assert run("repair", model, "-o", fixed, "--write-failed") == DONE
    assert fixed.exists()


def test_an_output_that_keeps_its_type_stays_a_danger(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "g (float16[N,64] x, float16[64,64] w, int64[1] k) => (float16[N,1] y, float16[N,64] z) {"
        " v, i = TopK(x, k) f = Cast<to = 1>(i) y = Cast<to = 10>(f) z = MatMul(x, w) }"
    )
    model, fixed, again = (tmp_path / n for n in ("low.onnx", "fixed.onnx", "again.onnx"))
    onnx.save(parse(text), model)
    assert run("repair", model, "-o", fixed) == NOT_STRICT
    out = capsys.readouterr().out
    assert "stays: output y holds counts" in out
    assert "raised: TopK" in out
    assert "raised: Cast" not in out
    assert run("repair", fixed, "-o", again) == NOT_STRICT
    assert "Nothing changed" in capsys.readouterr().out
    assert again.read_bytes() == fixed.read_bytes()
    assert run("repair", model, "-o", fixed, "--keep-io", "float32") == DONE


def test_what_is_about_a_verdict_needs_one(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("repair", model, "-o", model.with_name("fixed.onnx"))
    assert run(*words, "--rtol", 0.1) == WRONG_USAGE
    assert "--rtol has no effect without verification" in capsys.readouterr().err
    assert run(*words, "--keep-io", "half") == WRONG_USAGE
    assert "keep" in capsys.readouterr().err


def test_the_model_is_not_overwritten(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("repair", model, "-o", model) == FAILED
    assert str(model) in capsys.readouterr().err
