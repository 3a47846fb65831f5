"""A file is loaded in a process of its own, and what becomes of it is told in one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import amp_rewrite as amp
from amp_rewrite.runtimes.ort import isolated_load as module
from amp_rewrite.runtimes.ort.isolated_load import isolated_load

pytestmark = pytest.mark.own_process

WHO = "ONNX Runtime"
HEADER = '<ir_version: 9, opset_import: ["" : 18, "plug.domain" : 1]>'


def test_a_file_with_a_data_file_loads_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    model = onnx.parser.parse_model(HEADER + "g (float[2,2] x) => (float[2,2] y) {y = Mul(x, w)}")
    model.graph.initializer.append(numpy_helper.from_array(np.ones((64, 2, 2), np.float32), "w"))
    model.graph.output[0].type.tensor_type.ClearField("shape")
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, location="w.data", size_threshold=0)
    monkeypatch.chdir("/")
    result = isolated_load(path)
    assert (result.outcome, result.said, result.failed) == ("loaded", "", False)
    (tmp_path / "w.data").unlink()
    assert isolated_load(path).failed


def test_a_model_in_memory_is_loaded_from_a_file_that_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    model = amp.load(
        onnx.parser.parse_model(HEADER + "g (float[2] x) => (float[2] y) {y = Abs(x)}")
    )
    assert isolated_load(model).outcome == "loaded"
    monkeypatch.setattr("amp_rewrite.runtimes.model_source._IN_MEMORY", -1)
    assert isolated_load(model).outcome == "loaded"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("program", "outcome", "said"),
    [
        (
            "import ctypes; print('onnxruntime 1.2', flush=True); ctypes.string_at(0)",
            "ended",
            "onnxruntime 1.2 ends with a segmentation fault (SIGSEGV) when it loads the file",
        ),
        (
            "import os; print('onnxruntime 1.2', flush=True); os.abort()",
            "ended",
            "onnxruntime 1.2 ends with SIGABRT when it loads the file",
        ),
        (
            "import os; print('onnxruntime 1.2', flush=True); os.kill(os.getpid(), 9)",
            "unknown",
            "loading the file in a process of its own failed: it ended with status -9",
        ),
        ("import sys; sys.exit(4)", "unknown", "ONNX Runtime is not installed"),
        (
            "import time; time.sleep(60)",
            "unknown",
            f"{WHO} did not load the file within 0.3 s",
        ),
    ],
)
def test_a_process_that_ends_takes_nothing_with_it(
    program: str, outcome: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "_LOAD", program)
    monkeypatch.chdir(tmp_path)
    result = isolated_load(tmp_path / "m.onnx", seconds=0.3 if "sleep" in program else 60)
    assert (result.outcome, result.said) == (outcome, said)
    assert list(tmp_path.iterdir()) == []
