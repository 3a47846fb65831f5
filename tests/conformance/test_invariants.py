"""For every invariant: a rewritten model that holds it, and ones that break it."""

from collections.abc import Callable

import numpy as np
import onnx
import onnx.parser
import pytest
from invariants import verify_invariants
from onnx import TensorProto, helper, numpy_helper

from amp_rewrite.graph.io.load import load

BEFORE = """
<ir_version: 10, opset_import: ["" : 17], producer_name: "maker", doc_string: "a model">
main (float[2, 2] x, bool c) => (float[2, 2] y) <float[2, 2] w = {1, 2, 3, 4}, float k = {2}>
{
    ["mm"] h = MatMul(x, w)
    ["if"] b = If (c) <
        then_branch = yes () => (float[2, 2] t) { ["relu"] t = Relu(h) },
        else_branch = no () => (float[2, 2] e) { ["mul"] e = Mul(h, k) }
    >
    ["sm"] y = Softmax(b)
}
"""

AFTER = """
<ir_version: 10, opset_import: ["" : 17], producer_name: "maker", doc_string: "a model">
main (float[2, 2] x, bool c) => (float[2, 2] y)
    <float16[2, 2] w = {1, 2, 3, 4}, float k = {2}, float16[2, 2] h>
{
    ["x-CastToFp16-0-AutoMixedPrecision"] x16 = Cast <to = 10> (x)
    ["mm"] h = MatMul(x16, w)
    ["h-CastToFp32-0-AutoMixedPrecision"] h32 = Cast <to = 1> (h)
    ["if"] b = If (c) <
        then_branch = yes () => (float[2, 2] t) { ["relu"] t = Relu(h32) },
        else_branch = no () => (float[2, 2] e) { ["mul"] e = Mul(h32, k) }
    >
    ["sm"] y = Softmax(b)
}
"""


def parse(text: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(text)
    for initializer in model.graph.initializer:
        if initializer.data_type == TensorProto.FLOAT16:  # the parser writes numbers, not bits
            values = np.array(initializer.int32_data, np.float16).reshape(initializer.dims)
            initializer.CopyFrom(numpy_helper.from_array(values, initializer.name))
    return model


def node_of(graph: onnx.GraphProto, name: str) -> onnx.NodeProto:
    return next(node for node in graph.node if node.name == name)


def broken(before: onnx.ModelProto, after: onnx.ModelProto) -> set[str]:
    return {v.invariant for v in verify_invariants(load(before), load(after))}


def add_cast(model: onnx.ModelProto, source: str, output: str, to: int, index: int = 9) -> None:
    name = f"{output}-CastToFp16-{index}-AutoMixedPrecision"
    model.graph.node.insert(0, helper.make_node("Cast", [source], [output], name=name, to=to))


def test_a_faithful_rewrite_breaks_nothing() -> None:
    assert verify_invariants(load(parse(BEFORE)), load(parse(AFTER))) == ()


def test_a_model_that_is_left_alone_breaks_nothing() -> None:
    assert verify_invariants(load(parse(BEFORE)), load(parse(BEFORE))) == ()


def mixed_types(model: onnx.ModelProto) -> None:
    node_of(model.graph, "mm").input[0] = "x"


def low_output(model: onnx.ModelProto) -> None:
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT16


def same_node_name(model: onnx.ModelProto) -> None:
    node_of(model.graph, "mm").name = "sm"


def cast_chain(model: onnx.ModelProto) -> None:
    add_cast(model, "x16", "x32", TensorProto.FLOAT)
    model.graph.node.insert(1, model.graph.node.pop(0))


def second_cast(model: onnx.ModelProto) -> None:
    add_cast(model, "x", "x16b", TensorProto.FLOAT16)


def unread_cast(model: onnx.ModelProto) -> None:
    add_cast(model, "k", "k16", TensorProto.FLOAT16)


def unused_initializer(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(numpy_helper.from_array(np.array(1, np.float16), "left"))


def altered_weight(model: onnx.ModelProto) -> None:
    values = np.array([[1, 2], [3, 4.5]], np.float16)
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(values, "w"))


def lost_producer(model: onnx.ModelProto) -> None:
    model.producer_name = ""


def lost_node(model: onnx.ModelProto) -> None:
    model.graph.node.remove(node_of(model.graph, "sm"))
    node_of(model.graph, "if").output[0] = "y"


def other_attribute(model: onnx.ModelProto) -> None:
    node_of(model.graph, "sm").attribute.append(helper.make_attribute("axis", 0))


def altered_branch(model: onnx.ModelProto) -> None:
    node_of(model.graph, "if").attribute[0].g.node[0].op_type = "Tanh"


def branches_apart(model: onnx.ModelProto) -> None:
    branch = node_of(model.graph, "if").attribute[0].g
    branch.node[0].input[0] = "h"
    branch.output[0].type.tensor_type.elem_type = TensorProto.FLOAT16


@pytest.mark.parametrize(
    ("invariant", "spoil"),
    [
        ("checker", mixed_types),
        ("types", mixed_types),
        ("io-contract", low_output),
        ("unique-names", same_node_name),
        ("no-cast-chains", cast_chain),
        ("no-duplicate-casts", second_cast),
        ("no-useless-casts", unread_cast),
        ("no-unused-initializers", unused_initializer),
        ("initializers-intact", altered_weight),
        ("metadata", lost_producer),
        ("nodes", lost_node),
        ("nodes", other_attribute),
        ("nodes", altered_branch),
        ("types", branches_apart),
    ],
)
def test_a_spoiled_rewrite_breaks_its_invariant(
    invariant: str, spoil: Callable[[onnx.ModelProto], None]
) -> None:
    after = parse(AFTER)
    spoil(after)
    assert invariant in broken(parse(BEFORE), after)


def test_a_value_that_is_used_before_it_is_defined_is_found() -> None:
    after = load(parse(AFTER))  # the loader sorts, so the order is spoiled behind its back
    cast, matmul = after.graph[0], after.graph[1]
    after.graph.remove(cast)
    after.graph.insert_after(matmul, cast)
    found = verify_invariants(load(parse(BEFORE)), after)
    assert ("sorted", "mm") in {(v.invariant, v.where) for v in found}


def test_a_value_that_shadows_an_outer_one_is_found() -> None:
    after = load(parse(AFTER))  # the loader refuses such a file
    branch = after.graph[3].attributes["then_branch"].as_graph()
    branch.outputs[0].name = "h32"
    found = verify_invariants(load(parse(BEFORE)), after)
    assert ("unique-names", "h32") in {(v.invariant, v.where) for v in found}


def io_violations(keep: bool | list[str]) -> tuple[str, ...]:
    after = parse(AFTER)
    low_output(after)
    found = verify_invariants(load(parse(BEFORE)), load(after), keep_io_types=keep)
    return tuple(v.where for v in found if v.invariant == "io-contract")


def test_a_low_output_is_allowed_only_where_types_need_not_be_kept() -> None:
    assert io_violations(True) == ("y",)
    assert io_violations(False) == ()
    assert io_violations(["x"]) == ()
    assert io_violations(["y"]) == ("y",)


@pytest.mark.parametrize(
    ("source", "low", "holds"),
    [
        (np.nan, np.nan, True),
        (np.inf, np.inf, True),
        (-0.0, -0.0, True),
        (-0.0, 0.0, False),
        (-3.4e38, -65504, True),
        (-3.4e38, -np.inf, False),
        (1e-10, 0.0, True),
        (-1e-10, 6e-8, False),
        (np.inf, 65504, False),
    ],
)
def test_weights_keep_sign_nan_and_infinity_and_never_overflow(
    source: float, low: float, holds: bool
) -> None:
    before, after = parse(BEFORE), parse(AFTER)
    for model, value, dtype in ((before, source, np.float32), (after, low, np.float16)):
        weights = np.full((2, 2), value, dtype)
        model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, "w"))
    assert ("initializers-intact" not in broken(before, after)) is holds


def test_what_is_wrong_in_the_original_does_not_count() -> None:
    before, after = parse(BEFORE), parse(AFTER)
    for model in (before, after):
        node_of(model.graph, "mm").name = "sm"
        model.graph.initializer.append(numpy_helper.from_array(np.array(1, np.float32), "left"))
    assert verify_invariants(load(before), load(after)) == ()
