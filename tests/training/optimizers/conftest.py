"""Models whose gradients are what is fed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from amp_rewrite.graph.io.load import load


@pytest.fixture
def dense_model() -> Callable[..., ir.Model]:
    """Return a maker of models with loss = sum(w * g): what is fed as g is the gradient of w."""

    def make(initial: Any, name: str = "w") -> ir.Model:
        return _model(np.asarray(initial), name, "prediction = Identity({0})", "")

    return make


@pytest.fixture
def sparse_model() -> Callable[..., ir.Model]:
    """Return a maker of models with loss = sum(w[ids] * g): g is the sparse gradient of w."""

    def make(initial: Any, name: str = "w") -> ir.Model:
        body = "prediction = Gather<axis=0>({0}, ids)"
        return _model(np.asarray(initial), name, body, ", int64[n] ids")

    return make


def _model(initial: np.ndarray, name: str, body: str, inputs: str) -> ir.Model:
    kind = {"float32": "float", "float64": "double", "float16": "float16"}[initial.dtype.name]
    shape = ", ".join(map(str, initial.shape))
    rows = f"{kind}[n, {initial.shape[-1]}]" if inputs else f"{kind}[{shape}]"
    text = f"""forward ({rows} g{inputs}) => ({kind} loss) {{
        {body.format(name)}
        product = Mul(prediction, g)
        loss = ReduceSum<keepdims=0>(product)
    }}"""
    proto = onnx.parser.parse_graph(text)
    proto.initializer.append(onnx.numpy_helper.from_array(initial, name))
    opsets = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(proto, opset_imports=opsets, ir_version=8)
    onnx.checker.check_model(model)
    return load(model)
