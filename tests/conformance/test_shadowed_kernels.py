"""A local function that has the name of a runtime's operator is that operator, in every type."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.dtypes import Precision

NETWORK = """<ir_version: 10, opset_import: ["" : 24, "com.microsoft" : 1]>
g (float[1,8,64] x) => (float[1,8,64] y) {
  a = MatMul(x, w) n, m0, v0, s = com.microsoft.SkipSimplifiedLayerNormalization(a, x, g)
  y = MatMul(n, w) }"""
FUNCTION = """<domain: "com.microsoft", opset_import: ["" : 24]>
SkipSimplifiedLayerNormalization (i, k, g) => (o, m, v, s) {
  s = Add(i, k) o = RMSNormalization(s, g) m = Constant<value_float = 0.0>()
  v = Constant<value_float = 0.0>() }"""


def low(text: str, precision: Precision, target: str) -> tuple[onnx.ModelProto, set[str]]:
    """Return a rewritten network, and the operators that are low in it."""
    source = parse(text)
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32) / 8
    for name, array in {"w": weight, "g": np.ones(64, np.float32)}.items():
        source.graph.initializer.append(numpy_helper.from_array(array, name))
    result = amp.rewrite(source, precision=precision, target=target)
    nodes = result.report.nodes
    found = {n.op for n in nodes if any(v.dtype == precision for v in n.variables.values())}
    return amp.to_proto(result.model), found


@pytest.mark.parametrize(
    ("precision", "target"), [("float16", "cuda"), ("bfloat16", "cuda"), ("float16", "webgpu")]
)
def test_a_function_behind_a_kernel_changes_nothing(precision: Precision, target: str) -> None:
    alone, operators = low(NETWORK, precision, target)
    shadowed, same = low(f"{NETWORK} {FUNCTION}", precision, target)
    assert shadowed.graph == alone.graph
    assert operators == same >= {"MatMul"}
    assert len(shadowed.functions) == 1
