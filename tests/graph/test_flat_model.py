"""From onnx_ir to numbers and back: types, shapes, attributes, tensors, functions."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest
import training_models
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from amp_rewrite.graph.flat import MAIN, Attribute, Operator
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


def test_an_initializer_has_a_tensor_unless_it_is_sparse() -> None:
    model = onnx.parser.parse_model(BRANCHED)
    values = numpy_helper.from_array(np.array([5.0], np.float32), "s")
    indices = numpy_helper.from_array(np.array([2], np.int64))
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4]))
    flat = flat_of(model)
    found = flat.initializer(value(flat, "w"))
    assert found is not None
    assert found.dtype == TensorProto.FLOAT
    np.testing.assert_array_equal(found.numpy(), [1, 2])
    inner = flat.initializer(value(flat, "k"))
    assert inner is not None
    assert inner.size == 1
    assert flat.is_initializer(value(flat, "s"))
    assert flat.initializer(value(flat, "s")) is None
    assert flat.initializer(value(flat, "x")) is None
    assert flat.initializer(value(flat, "h")) is None


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ("value = float[2] {1, 2}", np.array([1, 2], np.float32)),
        ("value_float = 0.5", np.float32(0.5)),
        ("value_floats = [0.5, 1.5]", np.array([0.5, 1.5], np.float32)),
        ("value_int = 3", np.int64(3)),
        ("value_ints = [3, 4]", np.array([3, 4], np.int64)),
        ('value_string = "text"', None),
    ],
)
def test_a_constant_node_holds_numbers(attribute: str, expected: object) -> None:
    flat = flat_of(f"{HEAD} g (float x) => (y, z) {{ y = Constant<{attribute}>() z = Neg(x) }}")
    found, other = flat.held(0), flat.held(1)
    assert other is None
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert found.numpy().dtype == np.asarray(expected).dtype
        np.testing.assert_array_equal(found.numpy(), np.asarray(expected), strict=True)


def test_a_constant_of_another_domain_holds_nothing() -> None:
    flat = flat_of(f"{HEAD} g (float x) => (y) {{ y = local.Constant<value_float = 0.5>() }}")
    assert flat.held(0) is None


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


CALLS = f"""{HEAD}
g (float[2] x) => (y) {{ [call] y = local.Outer<how = 2>(x) }}
<domain: "local", opset_import: ["" : 17, "local" : 1]>
Outer <how, to: int = 10> (a) => (c) {{
    [cast] b = Cast<to: int = @to>(a)
    [inner] c = local.Inner(b)
}}
<domain: "local", opset_import: ["" : 18]>
Inner (d) => (e) {{ [leaf] e = Neg(d) }}"""


def test_a_function_has_defaults_and_its_nodes_refer_to_attributes() -> None:
    flat = flat_of(CALLS)
    outer = flat.functions[Operator("local", "Outer")]
    kind = AttributeProto.AttributeType.INT
    assert outer.defaults == {"to": Attribute(kind, 10)}
    assert outer.graph.attributes(0) == {"to": Attribute(kind, None, "to")}
    assert flat.attributes(0) == {"how": Attribute(kind, 2)}


def test_a_function_may_call_another_one() -> None:
    flat = flat_of(CALLS)
    outer = flat.functions[Operator("local", "Outer")].graph
    assert [outer.is_call(n) for n in range(outer.n_nodes)] == [False, True]
    inner = outer.functions[outer.called(1)].graph
    assert inner.node_names == ["leaf"]
    assert (outer.opset_of(0), inner.opset_of(0)) == (17, 18)


def test_overloads_are_functions_of_their_own() -> None:
    flat = flat_of(
        f"""{HEAD} g (float[2] x) => (y) {{ h = local.F:one(x) y = local.F:two(h) }}
        <domain: "local", overload: "one", opset_import: ["" : 21]> F (a) => (b) {{ b = Neg(a) }}
        <domain: "local", overload: "two", opset_import: ["" : 21]> F (a) => (b) {{ b = Exp(a) }}"""
    )
    called = [flat.called(n) for n in range(2)]
    assert called == [Operator("local", "F", "one"), Operator("local", "F", "two")]
    bodies = [flat.functions[c].graph.called(0).op_type for c in called]
    assert bodies == ["Neg", "Exp"]


def test_what_training_info_binds_is_bound_in_the_main_graph_alone() -> None:
    model = training_models.adam_mlp()
    branch = onnx.parser.parse_graph(
        """g (bool b, float[N, 2] Y) => (z) {
            z = If(b) <then_branch = t () => (B2) { B2 = Neg(Y) }, else_branch = e () => (q) {
                q = Exp(Y) }> }"""
    )
    model.graph.input.append(branch.input[0])
    model.graph.node.append(branch.node[0])
    flat = flat_of(model)
    assert {flat.value_names[v] for v in flat.bound} == {*training_models.WEIGHTS}
    main, inner = flat.values_called("B2")
    assert (flat.home[main], main in flat.bound) == (MAIN, True)
    assert (flat.home[inner], inner in flat.bound) == (1, False)
    assert flat_of(BRANCHED).bound == frozenset()
