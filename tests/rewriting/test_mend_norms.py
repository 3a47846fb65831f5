"""A file in 16 bits that ONNX Runtime does not load for a BatchNormalization is mended."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from rewrite_text import parse

import amp_rewrite as amp

LOW = np.eye(4, dtype=np.float16)
ONES = dict.fromkeys(("s", "t", "mu", "va"), np.ones(4, np.float32))


def model(between: str, **weights: np.ndarray) -> onnx.ModelProto:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float16[4,4] x) => (float16[4,4] y) {
        h = MatMul(x, w) %s b = BatchNormalization(r, s, t, mu, va) y = Relu(b) }"""
    return with_weights(text % between, **({"w": LOW} | ONES | weights))


def with_weights(text: str, **weights: np.ndarray) -> onnx.ModelProto:
    made = parse(text)
    tensors = (numpy_helper.from_array(array, name) for name, array in weights.items())
    made.graph.initializer.extend(tensors)
    return made


def loads(made: onnx.ModelProto) -> bool:
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        ort.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:  # noqa: BLE001 its errors have no common type
        return False
    return True


@pytest.mark.parametrize("between", ["r = Identity(h)", "r = Reshape(h, c)"])
def test_a_norm_that_onnx_runtime_would_fuse_becomes_float32(between: str) -> None:
    source = model(between, c=np.array([4, 4]))
    assert not loads(source)
    result = amp.rewrite(source, target="cuda")
    made = amp.to_proto(result.model)
    assert loads(made)
    assert result.changed
    assert result.report.summary.casts_added == 2
    again = amp.rewrite(made, target="cuda")
    assert amp.to_proto(again.model).SerializeToString() == made.SerializeToString()


def test_other_norms_are_left_alone() -> None:
    low = {name: value.astype(np.float16) for name, value in ONES.items()}
    for source in (
        model("r = Identity(h)", **low),
        model("r = Abs(h)"),
    ):
        made = amp.to_proto(amp.rewrite(source, target="cuda").model)
        assert [node.op_type for node in made.graph.node] == [n.op_type for n in source.graph.node]


def test_a_float32_norm_behind_a_low_product_is_not_made_low() -> None:
    """The Cast between the two would be no Cast any more."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float16[4,4] x) => (float16[4,4] y) {
        h = MatMul(x, w) r = Cast<to = 1>(h) b = BatchNormalization(r, s, t, mu, va)
        d = MatMul(b, v) y = Cast<to = 10>(d) }"""
    large = {"s": np.full(4, 1e6, np.float32)}
    source = with_weights(text, w=LOW, v=np.eye(4, dtype=np.float32), **(ONES | large))
    result = amp.rewrite(source, target="tensorrt", allow_ops=["BatchNormalization"])
    assert loads(amp.to_proto(result.model))
    norm = next(node for node in result.report.nodes if node.op == "BatchNormalization")
    assert norm.variables["T"].reason == "runtime-fusion"
