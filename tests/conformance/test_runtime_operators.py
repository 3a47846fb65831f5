"""Operators that ONNX Runtime has in the domain of ONNX, as models for its generation API do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import amp_rewrite as amp
from amp_rewrite.dtypes import BFLOAT16, FLOAT16, Precision

Array = np.ndarray[Any, Any]


def _model() -> ModelProto:
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node(
            "SimplifiedLayerNormalization", ["h", "s"], ["n"], "norm", axis=-1, epsilon=1e-5
        ),
        helper.make_node("MatMul", ["n", "w"], ["y"]),
    ]
    arrays = {"w": rng.standard_normal((32, 32)) / 6, "s": rng.standard_normal(32)}
    weights = [numpy_helper.from_array(a.astype(np.float32), n) for n, a in arrays.items()]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 32]) for n in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.parametrize(
    ("precision", "target"), [("float16", "cuda"), ("bfloat16", "cuda"), ("float16", "webgpu")]
)
def test_a_simplified_normalization_is_listed(precision: Precision, target: str) -> None:
    model = _model()
    result = amp.rewrite(model, precision=precision, target=target)
    assert not result.report.boundaries
    node = next(n for n in result.report.nodes if n.name == "norm")
    assert node.list == "infer"
    assert precision in {variable.dtype for variable in node.variables.values()}
    x = np.random.default_rng(1).standard_normal((4, 32)).astype(np.float32)
    expected, found = amp.evaluate(model, {"x": x})["y"], amp.evaluate(result.model, {"x": x})["y"]
    dtype = BFLOAT16 if precision == "bfloat16" else FLOAT16
    np.testing.assert_allclose(
        found, expected, atol=2 * dtype.rtol * np.abs(expected).max(), rtol=0
    )
