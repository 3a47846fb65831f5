"""From onnx_ir to numbers and back: types, shapes, attributes, tensors, functions."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnx_ir as ir
from onnx import AttributeProto, TensorProto, helper

from amp_rewrite.graph.flat import Attribute
from amp_rewrite.graph.flat_model import FlatModel
from amp_rewrite.graph.io.load import load

HEAD = '<ir_version: 10, opset_import: ["" : 21, "local" : 1]>'


def flat_of(source: str | onnx.ModelProto) -> FlatModel:
    model = onnx.parser.parse_model(source) if isinstance(source, str) else source
    return FlatModel.of(load(model))


def value(flat: FlatModel, name: str) -> int:
    (found,) = flat.values_called(name)
    return found


BRANCHED = f"""{HEAD} g (float[2,N] x, bool b) => (y) <float[2] w = {{1, 2}}> {{
    [add] h = Add(x, w)
    [if] y = If(b) <
        then_branch = t () => (p) <float16[1] k = {{3}}> {{ [then] p = Neg(h) }},
        else_branch = e () => (q) {{ [else] q = Exp(h) }}
    >
}}"""


def test_the_numbers_lead_back_to_the_objects() -> None:
    flat = flat_of(BRANCHED)
    assert [n.name for n in flat.nodes] == flat.node_names == ["add", "if", "then", "else"]
    assert flat.nodes == list(flat.model.graph.all_nodes())
    assert [flat.number[v] for v in flat.values] == list(range(flat.n_values))
    assert [v.name for v in flat.values] == flat.value_names
    assert [g.name for g in flat.graphs] == ["g", "t", "e"]
    for number, node in enumerate(flat.nodes):
        assert [flat.values[v] for v in flat.inputs_of(number)] == list(node.inputs)
        assert [flat.values[v] for v in flat.outputs_of(number)] == list(node.outputs)


def test_a_recorded_type_is_that_of_the_file_or_of_an_initializer_s_tensor() -> None:
    model = load(onnx.parser.parse_model(BRANCHED))
    model.graph.initializers["w"].type = None
    flat = FlatModel.of(model)
    found = {name: flat.recorded[value(flat, name)] for name in ("x", "b", "w", "k", "h", "y")}
    assert found == {
        "x": "tensor(float)",
        "b": "tensor(bool)",
        "w": "tensor(float)",
        "k": "tensor(float16)",
        "h": None,
        "y": None,
    }


def test_a_free_dimension_is_none_and_so_is_an_unknown_shape() -> None:
    flat = flat_of(BRANCHED)
    assert flat.shape(value(flat, "x")) == [2, None]
    assert flat.shape(value(flat, "b")) == []
    assert flat.shape(value(flat, "h")) is None


def test_an_attribute_is_a_plain_value_and_a_graph_is_none() -> None:
    kinds = AttributeProto.AttributeType
    flat = flat_of(
        f"""{HEAD} g (float[4] x, bool b, int64[1] s) => (y, p, c) {{
            y = local.Any<i = 3, f = 0.5, is = [1, 2], t = "text">(x)
            p = If(b) <then_branch = t () => (q) {{ q = Neg(x) }},
                       else_branch = e () => (r) {{ r = Exp(x) }}>
            c = ConstantOfShape<value = float[1] {{2}}>(s)
        }}"""
    )
    assert dict(flat.attributes(0)) == {
        "i": Attribute(kinds.INT, 3),
        "f": Attribute(kinds.FLOAT, 0.5),
        "is": Attribute(kinds.INTS, (1, 2)),
        "t": Attribute(kinds.STRING, "text"),
    }
    assert dict(flat.attributes(1)) == {
        "then_branch": Attribute(kinds.GRAPH, None),
        "else_branch": Attribute(kinds.GRAPH, None),
    }
    fill = flat.attributes(flat.nodes_of("ConstantOfShape")[0])["value"]
    assert fill.kind == kinds.TENSOR
    assert fill.value.dtype == TensorProto.FLOAT
    np.testing.assert_array_equal(fill.value.numpy(), [2])


def test_an_attribute_that_is_a_type_is_its_type_string() -> None:
    type_ = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    node = helper.make_node("Optional", [], ["y"], type=type_)
    flat = FlatModel.of(ir.from_proto(helper.make_model(helper.make_graph([node], "g", [], []))))
    kind = AttributeProto.AttributeType.TYPE_PROTO
    assert flat.attributes(0) == {"type": Attribute(kind, "seq(tensor(float))")}
