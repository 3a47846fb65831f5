"""`check` of several files: each by itself or against its float32 file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.cli.main import main
from amp_rewrite.numerics.model_checks import original_of

pytest.importorskip("onnxruntime")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a model, its float16 form, a wrong one, and a file that is no model."""
    monkeypatch.chdir(tmp_path)
    model = parse("g (float[4,8] x) => (float[4,8] y) { h = MatMul(x, w) y = Relu(h) }")
    weight = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    onnx.save(model, "net.onnx")
    amp.save(amp.rewrite(model), "net.fp16.onnx")
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weight * 2, "w"))
    amp.save(amp.rewrite(model), "net_bf16.onnx")
    onnx.save(model, "alone.onnx")
    Path("text.onnx").write_text("no model")
    return tmp_path


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as done:
        main(["check", *arguments])
    return int(done.value.code or 0)


@pytest.mark.usefixtures("folder")
def test_good_models_pass_and_are_compared_with_their_originals(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("net.onnx", "net.fp16.onnx", "alone.onnx") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["passed"] * 3
    assert lines[1].startswith("passed: net.fp16.onnx: Passed on 1 made-up batch")
    assert lines[1].endswith("(compared with net.onnx)")


@pytest.mark.usefixtures("folder")
def test_a_wrong_model_and_a_file_that_is_none_fail_and_the_others_are_still_checked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("text.onnx", "net_bf16.onnx", "net.fp16.onnx", "--format", "json") == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["ok"]
    assert [model["outcome"] for model in found["models"]] == ["failed", "failed", "passed"]
    assert "not an ONNX model" in found["models"][0]["verdict"]
    assert found["models"][1]["original"] == "net.onnx"


@pytest.mark.usefixtures("folder")
def test_findings_are_annotations_and_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    given = ("net_bf16.onnx", "net.fp16.onnx", "--format", "github", "--summary", "summary.txt")
    assert run(*given) == 1
    assert run(*given) == 1
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 2
    assert out[0].startswith("::error file=net_bf16.onnx,title=amp-rewrite check::FAILED")
    table = Path("summary.txt").read_text("utf-8")
    assert table.count("### amp-rewrite check") == 2
    assert "| net.fp16.onnx | float16 | passed | Passed" in table


@pytest.mark.usefixtures("folder")
def test_without_a_run_the_rules_alone_are_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("net_bf16.onnx", "net.onnx", "--no-run") == 0
    assert "Passed: the rules found nothing" in capsys.readouterr().out


@pytest.mark.usefixtures("folder")
def test_what_is_about_one_model_is_refused_for_several(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("net.onnx", "net.fp16.onnx", "--report", "safety.json") == 2
    assert "--report is about one model" in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_a_summary_that_cannot_be_written_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("net.onnx", "--no-run", "--summary", "net.onnx/summary.txt") == 1
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "original"),
    [
        ("net.fp16.onnx", "net.onnx"),
        ("net_bf16.onnx", "net.onnx"),
        ("net-half.onnx", "net.onnx"),
        ("net.FLOAT16.onnx", "net.onnx"),
        ("net.onnx", None),
        ("fp16.onnx", None),
        ("other.fp16.onnx", None),
    ],
)
@pytest.mark.usefixtures("folder")
def test_the_original_is_found_by_its_name(name: str, original: str | None) -> None:
    assert original_of(Path(name)) == (None if original is None else Path(original))
