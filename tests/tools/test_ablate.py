"""tools/ablate.py: what a painting loses without each pass and each rule of values."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx

ROOT = Path(__file__).parents[2]

TEXT = """<ir_version: 9, opset_import: ["" : 18]>
g (float[4,8] x) => (float[4,8] y) {
  h = MatMul(x, w) r = Relu(h) y = MatMul(r, v) }"""


def test_a_pass_that_something_rests_on_is_named(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(TEXT)
    for name in "wv":
        weight = np.eye(8, dtype=np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    command = [sys.executable, str(ROOT / "tools" / "ablate.py"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    changed, *_, last = done.stdout.splitlines()
    assert changed.startswith("seed-allow: 1: ")
    assert last.startswith("change nothing: ")
    assert "keep-phases" in last
