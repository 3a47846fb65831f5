"""What ONNX Runtime does not load is not called right, and is not written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.cli.common import DONE, FAILED, NOT_STRICT
from amp_rewrite.cli.main import main
from amp_rewrite.runtimes.ort import isolated_load
from amp_rewrite.runtimes.ort.isolated_load import LoadResult, load_of_source

SAID = "onnxruntime 1.2 ends with a segmentation fault (SIGSEGV) when it loads the file"
TEXT = "g (float[N,4] x, float[4,4] w) => (float[N,4] y) { y = MatMul(x, w) }"


def run(*words: object) -> int:
    """Run a command; return its exit status."""
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    return int(left.value.code or 0)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Return a float32 file and a float16 one, which end whatever process loads them."""
    wide, low = tmp_path / "wide.onnx", tmp_path / "low.onnx"
    onnx.save(parse(TEXT), wide)
    amp.save(amp.rewrite(wide, keep_io_types=False).model, low)
    monkeypatch.setattr(
        isolated_load, "_run_apart", lambda path, seconds: (-11, "onnxruntime 1.2\n")
    )
    return wide, low


def test_verify_begins_with_what_the_runtime_said(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    wide, low = files
    report = amp.verify(wide, low, stress=False)
    assert not report.ok
    assert report.failures == (SAID,)
    assert f": {SAID}" in str(report.verdict)
    assert json.loads(report.to_json())["refused"] == SAID
    assert run("verify", wide, low, "--no-stress") == FAILED
    assert SAID in capsys.readouterr().out.splitlines()[0]


@pytest.mark.own_process
def test_a_model_in_memory_is_loaded_with_the_data_file_that_it_refers_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = parse(TEXT)
    wide.graph.initializer.append(numpy_helper.from_array(np.eye(4, dtype=np.float32), "w"))
    del wide.graph.input[1]
    place = {"save_as_external_data": True, "location": "w.data", "size_threshold": 0}
    onnx.save(wide, tmp_path / "m.onnx", **place)
    monkeypatch.chdir("/")
    given = amp.load(tmp_path / "m.onnx")
    assert load_of_source(given) == LoadResult("loaded")
    refused = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 18]>
        g (float[2,2] x, float16[2,2] z) => (float[2,2] y) { y = MatMul(x, z) }"""
    )
    said = load_of_source(refused)
    assert said is not None
    assert said.outcome == "refused"


def test_convert_writes_such_a_file_only_if_it_is_told_to(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    wide, _ = files
    out = wide.with_name("out.onnx")
    assert run("convert", wide, "-o", out, "--verify") == NOT_STRICT
    assert SAID in capsys.readouterr().err
    assert not out.exists()
    assert run("convert", wide, "-o", out, "--verify", "--write-failed") == DONE
    assert out.exists()
