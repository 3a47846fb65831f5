"""The table of what runtimes make of converted models."""

from __future__ import annotations

import sys
from pathlib import Path

import bench_judges
import numpy as np
import onnx
import onnx.parser
import pytest
import tables

ROWS = [
    {"model": "a", "tool": "amp_rewrite", "error": "", "seconds": 1.0}
    | {"checker": "yes", "loads": "yes", "cuda": "yes", "emulated": "yes", "cosine": 0.9999},
    {"model": "b", "tool": "amp_rewrite", "error": "", "seconds": 3.0}
    | {"checker": "yes", "loads": "no kernel", "cuda": "died", "emulated": "yes", "cosine": 0.5},
    {"model": "a", "tool": "autocast", "error": "it failed"},
    {"model": "b", "tool": "autocast", "error": "", "seconds": 2.0}
    | {"checker": "yes", "loads": "yes", "cuda": "yes", "emulated": "yes", "cosine": None},
]


def test_a_row_counts_what_each_judge_lets_pass() -> None:
    lines = tables.judges(ROWS).splitlines()
    assert lines[0] == (
        "| converter | converted | valid | loads on a CPU | placed on CUDA | emulated | finite "
        "| cosine at least 0.999 | median s |"
    )
    assert lines[2] == "| amp_rewrite | 2 of 2 | 2 | 1 | 1 | 2 | 2 | 1 | 2.0 |"
    assert lines[3] == "| AutoCast | 1 of 2 | 1 | 1 | 1 | 1 | 0 | 0 | 2.0 |"


def test_a_judge_that_dies_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "venv" / "bin"
    folder.mkdir(parents=True)
    (folder / "python").write_text("#!/bin/sh\nkill -SEGV $$\n")
    (folder / "python").chmod(0o755)
    assert bench_judges.on_cuda(tmp_path / "m.onnx", tmp_path) == "died"


def test_a_conversion_says_how_long_it_took_or_why_it_failed(tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2,2] x) => (float[2,2] y) '
    onnx.save(onnx.parser.parse_model(text + "{ y = MatMul(x, x) }"), model)
    target = tmp_path / "out" / "m.onnx"
    target.parent.mkdir()
    assert bench_judges.convert(model, "amp_rewrite", target)["seconds"] > 0
    assert onnx.load(target).graph.node
    model.write_bytes(b"nothing")
    assert "m.onnx" in bench_judges.convert(model, "amp_rewrite", target)["error"]


def test_a_model_that_the_corpus_lacks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "corpus.json").write_text('[{"name": "known", "inputs": {}}]')
    monkeypatch.setenv("AMP_CORPUS", str(tmp_path))
    with pytest.raises(SystemExit, match="the corpus has no other; it has known"):
        bench_judges.corpus(["other"], tmp_path)


def test_the_inputs_of_a_model_are_those_of_the_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "corpus.json").write_text('[{"name": "m", "inputs": {"x": [[2, 2], "c:3"]}}]')
    (tmp_path / "models").mkdir()
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2,2] x) => (float[2,2] y) '
    onnx.save(onnx.parser.parse_model(text + "{ y = Neg(x) }"), tmp_path / "models" / "m.onnx")
    monkeypatch.setenv("AMP_CORPUS", str(tmp_path))
    (model,) = bench_judges.corpus([], tmp_path)
    np.testing.assert_array_equal(model.feeds()["short"]["x"], np.full((2, 2), 3, np.float32))
    assert bench_judges.peer_python("amp_rewrite") == sys.executable
