"""A model as an engine reads it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser

import amp_rewrite as amp

TEXT = """<ir_version: 9, opset_import: ["" : 20]>
g (float[N,16] x) => (float[M,4,4] y) {
    h = MatMul(x, w)
    r = Reshape(h, shape)
    t = Transpose<perm = [0, 2, 1]>(r)
    y = MatMul(r, t) }"""


def test_a_shape_in_a_data_file_is_there_while_an_engine_loads(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(TEXT)
    weight = np.eye(16, dtype=np.float32)
    for name, array in {"w": weight, "shape": np.array([-1, 4, 4])}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, location="m.data", size_threshold=0)
    before = path.read_bytes()
    x = np.arange(32, dtype=np.float32).reshape(2, 16)
    expected = x.reshape(2, 4, 4) @ x.reshape(2, 4, 4).transpose(0, 2, 1)
    np.testing.assert_array_equal(amp.evaluate(path, {"x": x})["y"], expected)
    assert amp.verify(path, amp.rewrite(path).model, {"x": x / 32}).ok
    assert path.read_bytes() == before
