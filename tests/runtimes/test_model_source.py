"""A model as an engine reads it."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import amp_rewrite as amp
from amp_rewrite.dtypes import AnyPrecision
from amp_rewrite.runtimes import model_source
from amp_rewrite.runtimes.engines import give_back

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


INSIDE = """<ir_version: 9, opset_import: ["" : 20]>
g (float[4,16] x, bool c) => (float[4,16] y, float[16,16] w_out) {
    h = MatMul(x, w)
    a = Add(h, bias)
    k = If(c) <then_branch = t () => (float[4,16] k1) { k1 = MatMul(a, v) },
               else_branch = e () => (float[4,16] k2) { k2 = Sub(a, bias) }>
    y = Gelu(k)
    w_out = Identity(w) }"""


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_weights_that_stay_in_files_compute_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: AnyPrecision
) -> None:
    model = onnx.parser.parse_model(INSIDE)
    generator = np.random.default_rng(0)
    for name, shape in {"w": (16, 16), "v": (16, 16), "bias": (16,)}.items():
        array = generator.normal(size=shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, location="m.data", size_threshold=0)
    low = amp.rewrite(path, precision=precision, keep_io_types=False)
    x = generator.normal(size=(4, 16)).astype(low.model.graph.inputs[0].dtype.numpy())
    feeds = [{"x": x, "c": np.array(c)} for c in (True, False)]
    expected = [amp.evaluate(low, feed) for feed in feeds]
    monkeypatch.setattr(model_source, "_LARGE", 0)
    for feed, outputs in zip(feeds, expected, strict=True):
        made = amp.evaluate(low, feed)
        for name, output in outputs.items():
            np.testing.assert_array_equal(made[name], output, name)
    assert amp.verify(path, low, [feed | {"x": x.astype(np.float32)} for feed in feeds]).ok


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_a_session_makes_no_copy_of_weights_in_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: AnyPrecision
) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 20]>
        g (float[2,4096] x) => (float[2,4096] y) { h = MatMul(x, w)  y = MatMul(h, w) }"""
    )
    weight = np.random.default_rng(0).normal(size=(4096, 4096)).astype(np.float32) / 64
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, location="m.data")
    del model
    if precision == "float16":
        amp.rewrite(path).save(tmp_path / "low.onnx")
        path = tmp_path / "low.onnx"
    monkeypatch.setattr(model_source, "_LARGE", 1 << 20)
    x = {"x": np.ones((2, 4096), np.float32)}
    amp.evaluate(path, x)  # what is loaded once
    before = _own_memory()
    evaluator = amp.Evaluator(path)
    evaluator.run(x)
    assert _own_memory() - before < weight.nbytes / 4


def _own_memory() -> int:
    """Return the bytes of this process that are not pages of files."""
    gc.collect()
    give_back()
    status = Path("/proc/self/status").read_text("ascii")
    return int(next(s for s in status.splitlines() if s.startswith("RssAnon")).split()[1]) << 10
