"""A model whose gradients are what is fed: dense ones, a scalar and a sparse one."""

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from amp_rewrite.graph.io.load import load

TEXT = """forward (float g0, float[5] g1, float[4,3] g2, float[n,3] g3, int64[n] ids)
    => (float loss) {
    p0 = Mul(scalar, g0)
    p1 = Mul(vector, g1)
    p2 = Mul(matrix, g2)
    rows = Gather<axis=0>(table, ids)
    p3 = Mul(rows, g3)
    s1 = ReduceSum<keepdims=0>(p1)
    s2 = ReduceSum<keepdims=0>(p2)
    s3 = ReduceSum<keepdims=0>(p3)
    loss = Sum(p0, s1, s2, s3)
}"""
SHAPES = {"scalar": (), "vector": (5,), "matrix": (4, 3), "table": (6, 3)}
Feeds = dict[str, np.ndarray]


@pytest.fixture
def four_variables() -> Callable[[], ir.Model]:
    """Return a maker of models with variables "scalar", "vector", "matrix" and "table"."""

    def make() -> ir.Model:
        rng = np.random.default_rng(0)
        proto = onnx.parser.parse_graph(TEXT)
        for name, shape in SHAPES.items():
            array = np.asarray(rng.normal(size=shape), np.float32)
            proto.initializer.append(onnx.numpy_helper.from_array(array, name))
        opsets = [onnx.helper.make_opsetid("", 17)]
        model = onnx.helper.make_model(proto, opset_imports=opsets, ir_version=8)
        onnx.checker.check_model(model)
        return load(model)

    return make


@pytest.fixture
def feeds_of() -> Callable[[np.random.Generator], Feeds]:
    """Return a maker of random feeds for this model; an index occurs twice."""

    def make(rng: np.random.Generator) -> Feeds:
        feeds = {"g0": (), "g1": (5,), "g2": (4, 3), "g3": (3, 3)}
        arrays = {k: np.asarray(rng.normal(size=s), np.float32) for k, s in feeds.items()}
        return {**arrays, "ids": np.array([4, 1, 4])}

    return make
