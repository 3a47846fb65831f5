"""A square constant is multiplied with as it is and transposed, in one model."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import amp_rewrite as amp
from amp_rewrite.runtimes.openvino.compiled_model import Session
from amp_rewrite.runtimes.openvino.turned_weights import part_turned_weights

PRODUCTS = {
    "Gemm": "y = MatMul(x, w) z = Gemm<transB=1>(x, w)",
    "both Gemm": "y = Gemm(x, w) z = Gemm<transB=1>(x, w)",
    "Transpose": "t = Transpose<perm=[1,0]>(w) y = MatMul(x, w) z = MatMul(x, t)",
    "FusedMatMul": "y = MatMul(x, w) z = com.microsoft.FusedMatMul<transB=1>(x, w)",
    "default Transpose": "t = Transpose(w) y = MatMul(x, w) z = MatMul(x, t)",
    "Cast": "v = Cast<to=1>(w) y = MatMul(x, v) z = Gemm<transB=1>(x, v)",
    "twice": "t = Transpose(w) y = Gemm<transB=1>(x, t) z = Gemm<transB=1>(x, w)",
    "as a Constant": "c = Constant<value=W>() y = MatMul(x, c) z = Gemm<transB=1>(x, c)",
}


def model(nodes: str, length: int) -> tuple[ir.Model, np.ndarray]:
    """Return a model that makes y of x W and z of x W^T, and W."""
    rng = np.random.default_rng(0)
    weight = rng.integers(-8, 8, (length, length)).astype(np.float32)
    text = f"g (float[N,{length}] x) => (float[N,{length}] y, float[N,{length}] z)"
    held = weight.astype(np.float16) if "Cast" in nodes else weight
    constant = onnx.numpy_helper.from_array(held, "w")
    graph = onnx.parser.parse_graph(f"{text} {{ {nodes.replace('<value=W>', '')} }}")
    if "value=W" in nodes:
        node = graph.node[0]
        node.attribute.append(onnx.helper.make_attribute("value", constant))
    else:
        graph.initializer.append(constant)
    opsets = [onnx.helper.make_opsetid(*known) for known in (("", 20), ("com.microsoft", 1))]
    return amp.load(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9)), weight


@pytest.mark.share(2)
@pytest.mark.openvino
@pytest.mark.usefixtures("openvino")
@pytest.mark.parametrize("length", [24, 256])
@pytest.mark.parametrize("nodes", PRODUCTS.values(), ids=PRODUCTS)
def test_openvino_multiplies_with_each_way_of_a_weight(nodes: str, length: int) -> None:
    made, weight = model(nodes, length)
    x = np.random.default_rng(1).integers(-8, 8, (16, length)).astype(np.float32)
    y, z = Session(made).run({"x": x})
    np.testing.assert_array_equal(y, x @ weight)
    np.testing.assert_array_equal(z, x @ weight.T)


@pytest.mark.parametrize(
    "nodes",
    [
        "y = MatMul(x, w) z = Gemm(x, w)",
        "y = MatMul(x, w) t = Transpose(x) u = MatMul(w, t) z = Transpose(u)",
    ],
)
def test_a_weight_that_products_read_one_way_is_left_alone(nodes: str) -> None:
    made, _ = model(nodes, 4)
    before = ir.to_proto(made)
    part_turned_weights(made)
    assert ir.to_proto(made) == before
