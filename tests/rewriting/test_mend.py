"""Files whose types are at odds."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.errors import GraphError, RunError
from amp_rewrite.runtimes.ort.sessions import Session


def loads(model: onnx.ModelProto) -> bool:
    """Tell whether ONNX Runtime takes a model."""
    try:
        Session(amp.load(model))
    except RunError:
        return False
    return True


def test_a_declaration_inside_becomes_what_the_operator_gives() -> None:
    model = parse("g (float16[2] x) => (float16[2] y) { h = Relu(x) y = Identity(h) }")
    model.graph.value_info.append(helper.make_tensor_value_info("h", TensorProto.FLOAT, [2]))
    assert not loads(model)
    report = amp.check(model, run=False)
    assert [danger.reason for danger in report.dangers] == ["declared-type"]
    made = amp.repair(model)
    assert made.changed
    assert loads(amp.to_proto(made.model))
    assert not amp.repair(made.model).changed


def test_an_input_becomes_what_its_initializer_is() -> None:
    model = parse(
        '<ir_version: 3, opset_import: ["" : 9]>'
        " g (float16[2] x, float[2] w) => (float16[2] y) { y = Add(x, w) }"
    )
    model.graph.initializer.append(numpy_helper.from_array(np.ones(2, np.float16), "w"))
    assert not loads(model)
    assert loads(amp.to_proto(amp.repair(model).model))


def test_a_node_that_reads_two_types_is_refused_in_one_line() -> None:
    model = parse("g (float16[2] x, float[2] z) => (float16[2] y) { y = Add(x, z) }")
    for call in (amp.check, amp.repair, amp.widen):
        with pytest.raises(GraphError, match=r"reads two types .*tensor\(float16\) and"):
            call(model)


def test_an_output_that_is_declared_wrong_is_refused() -> None:
    model = parse("g (float16[2] x) => (float[2] y) { y = Relu(x) }")
    with pytest.raises(GraphError, match="an output of the model has another type"):
        amp.repair(model)


def test_from_one_low_type_to_the_other_nothing_contradictory_is_written() -> None:
    product = "p = MatMul(x, w) y = Add(p, v)"
    head = "g (float16[2,2] x, float16[2,2] w, float[2,2] v) => (float16[2,2] y)"
    model = parse(f"{head} {{ {product} }}")
    with pytest.raises(GraphError, match=r"reads two types .*tensor\(float16\) and"):
        amp.rewrite(model, precision="bfloat16", target="schema")
