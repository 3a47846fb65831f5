"""The table of what runtimes make of converted models."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import bench_judges
import judges
import numpy as np
import onnx
import onnx.parser
import peers
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


def stub(folder: Path, script: str) -> Path:
    """Return a CUDA stub whose interpreter is a shell script."""
    executable(folder / "venv" / "bin" / "python", script)
    return folder


def executable(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def small_model(path: Path) -> Path:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2,2] x) => (float[2,2] y) '
    onnx.save(onnx.parser.parse_model(text + "{ y = MatMul(x, x) }"), path)
    return path


def test_the_float32_model_is_not_said_to_be_converted() -> None:
    row = {"model": "a", "tool": "original", "error": "", "checker": "yes", "cosine": 1.0}
    line = tables.judges([row]).splitlines()[2]
    assert line == "| the float32 model | | 1 | 1 | 1 | |"


@pytest.mark.parametrize(
    ("script", "verdict"),
    [
        ("kill -SEGV $$", "died"),
        ("exec sleep 60", "not done in 0.2 s"),
        ("""echo '{"error": "no kernel"}'""", "no kernel"),
        ("""echo '{"operators": {}}'""", "yes"),
    ],
)
def test_a_judge_answers_dies_or_takes_too_long(script: str, verdict: str, tmp_path: Path) -> None:
    assert judges.on_cuda(tmp_path / "m.onnx", stub(tmp_path, script), 0.2) == verdict


def test_a_judge_that_is_not_here_is_named(tmp_path: Path) -> None:
    assert "make_stub.py makes one" in judges.missing("cuda", tmp_path)
    assert not judges.missing("cuda", stub(tmp_path, ""))
    assert not judges.missing("cpu", tmp_path)
    with pytest.raises(SystemExit, match=r"there is no CUDA stub in .*; or leave cuda out"):
        bench_judges.main(["--judges", "cuda", "--cuda-stub", str(tmp_path / "none")])


def test_the_checker_judges_in_a_process_of_its_own(tmp_path: Path) -> None:
    model = small_model(tmp_path / "m.onnx")
    assert judges.on_cpu(model, 60) == {"checker": "yes", "loads": "yes"}
    assert judges.on_cpu(model, 0.01) == dict.fromkeys(("checker", "loads"), "stopped after 0 s")


def test_a_conversion_says_how_long_it_took_or_why_it_failed(tmp_path: Path) -> None:
    model = small_model(tmp_path / "m.onnx")
    target = tmp_path / "out" / "m.onnx"
    target.parent.mkdir()
    convert = partial(bench_judges.convert, model, "amp_rewrite", target, sys.executable)
    assert convert(60)["seconds"] > 0
    assert onnx.load(target).graph.node
    assert convert(0.01)["error"] == "stopped after 0 s"
    model.write_bytes(b"nothing")
    assert "m.onnx" in convert(60)["error"]


def test_a_peer_is_taken_from_where_it_is_said_to_be() -> None:
    given = peers.given_pythons(["autocast=/there/python"])
    assert peers.python_of("autocast", given) == "/there/python"
    assert peers.python_of("amp_rewrite", given) == sys.executable
    assert peers.peer_versions(["amp_rewrite"], given) == {}
    for word in ("autocast", "autocast=", "onnxruntime=python"):
        with pytest.raises(SystemExit, match="takes autocast or onnxsim=PYTHON, not"):
            peers.given_pythons([word])


def test_what_pip_says_of_a_peer_that_it_cannot_install_is_handed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "CACHE", tmp_path)
    monkeypatch.setattr(peers.venv, "create", lambda *_, **__: None)
    executable(
        tmp_path / "peer-onnxsim" / "bin" / "python",
        "echo reading >&2; echo 'ERROR: not found' >&2; exit 1",
    )
    with pytest.raises(SystemExit, match=r"^onnxsim cannot be installed: ERROR: not found$"):
        peers.python_of("onnxsim", {})
    assert not (tmp_path / "peer-onnxsim" / "ready").exists()


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
