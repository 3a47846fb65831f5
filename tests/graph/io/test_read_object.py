"""From onnx_ir to numbers and back: nodes, values and graphs in order, types, shapes."""

from __future__ import annotations

import onnx.parser

from amp_rewrite.graph.flat import FlatGraph
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.io.read_object import number_object, read_object, values_in
from amp_rewrite.graph.traverse import graphs_in

HEAD = '<ir_version: 10, opset_import: ["" : 21, "local" : 1]>'


def flat_of(source: str | onnx.ModelProto) -> FlatGraph:
    model = onnx.parser.parse_model(source) if isinstance(source, str) else source
    return read_object(load(model))


def value(flat: FlatGraph, name: str) -> int:
    (found,) = flat.values_called(name)
    return found


BRANCHED = f"""{HEAD} g (float[2,N] x, bool b) => (y) <float[2] w = {{1, 2}}> {{
    [add] h = Add(x, w)
    [if] y = If(b) <
        then_branch = t () => (p) <float16[1] k = {{3}}> {{ [then] p = Neg(h) }},
        else_branch = e () => (q) {{ [else] q = Exp(h) }}
    >
}}"""


def test_the_numbers_are_those_of_the_objects_in_order() -> None:
    model = load(onnx.parser.parse_model(BRANCHED))
    flat = number_object(model)
    nodes, values = list(model.graph.all_nodes()), list(values_in(model.graph))
    numbers = {value: number for number, value in enumerate(values)}
    assert [n.name for n in nodes] == flat.node_names == ["add", "if", "then", "else"]
    assert [v.name for v in values] == flat.value_names
    assert [g.name for g in graphs_in(model.graph)] == [g.name for g in flat.graphs]
    for number, node in enumerate(nodes):
        assert flat.inputs_of(number) == [numbers[v] for v in node.inputs if v is not None]
        assert flat.outputs_of(number) == [numbers[v] for v in node.outputs]


def test_a_recorded_type_is_that_of_the_file_or_of_an_initializer_s_tensor() -> None:
    model = load(onnx.parser.parse_model(BRANCHED))
    model.graph.initializers["w"].type = None
    flat = read_object(model)
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
    assert flat.recorded_shape(value(flat, "x")) == [2, None]
    assert flat.recorded_shape(value(flat, "b")) == []
    assert flat.recorded_shape(value(flat, "h")) is None
