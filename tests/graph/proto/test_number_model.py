"""Models by number: names, types, shapes and tensors lead to the messages that they came from."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.errors import GraphError
from amp_rewrite.graph.flat import ABSENT, FlatGraph
from amp_rewrite.graph.proto.external import ExternalFiles
from amp_rewrite.graph.proto.number_model import number_model

TEXT = """g (float[2,N] x, bool t) => (float[2,4] y) <float[4,4] w, float[2,4] h> {
    h = MatMul(x, w)
    y = If(t) <
      then_branch = p () => (float[2,4] a) { b = Exp(h) a = Neg(b) },
      else_branch = q () => (float[2,4] c) { c = Add(h, h) }> }"""


def flat_of(text: str = TEXT) -> FlatGraph:
    proto = parse(text)
    proto.graph.initializer.append(helper.make_tensor("w", TensorProto.FLOAT, [4, 4], [1.0] * 16))
    return number_model(proto, ExternalFiles(None))


def number(flat: FlatGraph, name: str) -> int:
    return flat.value_names.index(name)


def test_nodes_are_numbered_before_what_is_inside_them() -> None:
    flat = flat_of()
    assert [flat.called(n).op_type for n in range(flat.n_nodes)] == [
        *("MatMul", "If", "Exp", "Neg", "Add")
    ]
    assert [(body.owner, body.nodes) for body in flat.bodies] == [
        *((ABSENT, [0, 1]), (1, [2, 3]), (1, [4]))
    ]
    assert flat.graphs[1] == flat.nodes[1].attribute[0].g
    assert list(flat.inputs_of(4)) == [number(flat, "h")] * 2


def test_values_have_the_types_and_shapes_that_the_file_gives_them() -> None:
    flat = flat_of()
    x, w, h, b = (number(flat, name) for name in "xwhb")
    assert [flat.recorded[v] for v in (x, w, h, b)] == ["tensor(float)"] * 3 + [None]
    assert [flat.recorded_shape(v) for v in (x, h, b)] == [[2, None], [2, 4], None]
    shape = flat.shape(w)
    assert shape is not None
    assert list(shape) == [4, 4]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("value = float[2] {1, 2}", np.array([1, 2], np.float32)),
        ("value_float = 2.5", np.array(2.5, np.float32)),
        ("value_floats = [1.0, 2.0]", np.array([1, 2], np.float32)),
        ("value_int = 3", np.array(3)),
        ("value_ints = [3, 4]", np.array([3, 4])),
    ],
)
def test_a_constant_node_holds_a_tensor(value: str, expected: np.ndarray) -> None:
    flat = number_model(parse(f"g () => (y) {{ y = Constant<{value}>() }}"), ExternalFiles(None))
    held = flat.held(0)
    assert held is not None
    assert held.numpy().dtype == expected.dtype
    assert held.dtype == helper.np_dtype_to_tensor_dtype(expected.dtype)
    assert held.size == expected.size
    np.testing.assert_array_equal(held.numpy(), expected)
    (block,) = held.stream.blocks()
    np.testing.assert_array_equal(block, expected.reshape(-1))


def test_a_function_is_numbered_by_itself_and_has_defaults() -> None:
    proto = parse(
        """<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
        g (float[2] x) => (float[2] y) { y = local.F(x) }
        <domain: "local", opset_import: ["" : 20]>
        F <alpha: float = 2.0> (a) => (b) { b = LeakyRelu<alpha: float = @alpha>(a) }"""
    )
    flat = number_model(proto, ExternalFiles(None))
    ((key, function),) = flat.functions.items()
    assert key[:2] == ("local", "F")
    assert function.defaults["alpha"].value == 2.0
    graph = function.graph
    assert (graph.n_nodes, graph.opsets) == (1, {"": 20})
    assert graph.attributes(0)["alpha"].reference == "alpha"


@pytest.mark.parametrize(("depth", "fits"), [(64, True), (65, False), (3000, False)])
def test_functions_are_nested_to_a_limit(depth: int, fits: bool) -> None:
    proto = parse("g (x) => (y) { y = local.F0(x) }")
    proto.opset_import.append(helper.make_opsetid("local", 1))
    imports = [helper.make_opsetid("local", 1), helper.make_opsetid("", 17)]
    for level in range(depth):
        last = level == depth - 1
        call = helper.make_node("Relu" if last else f"F{level + 1}", ["a"], ["b"])
        call.domain = "" if last else "local"
        proto.functions.append(
            helper.make_function("local", f"F{level}", ["a"], ["b"], [call], imports)
        )
    if fits:
        assert amp.rewrite(proto).report.summary.float_nodes == 0
        return
    with pytest.raises(GraphError, match=f"too deep; found {depth} levels; expected at most 64"):
        amp.rewrite(proto)
