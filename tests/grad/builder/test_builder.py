from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from amp_rewrite import to_proto
from amp_rewrite.grad import Builder, GradientError
from amp_rewrite.grad.builder.broadcasting import sum_to
from amp_rewrite.grad.builder.known import take_place

FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64


def empty(*inputs: tuple[str, Any], opset: int = 18, ir_version: int = 8) -> ir.Model:
    """Return a model without nodes; a shape of None is of unknown rank."""
    values = [
        ir.Value(
            name=name, type=ir.TensorType(FLOAT), shape=None if shape is None else ir.Shape(shape)
        )
        for name, shape in inputs
    ]
    graph = ir.Graph(values, [], nodes=[], opset_imports={"": opset}, name="g")
    return ir.Model(graph, ir_version=ir_version)


def evaluate(model: ir.Model, *outputs: ir.Value, **feeds: Any) -> list[np.ndarray]:
    model.graph.outputs.extend(outputs)
    session: Any = onnxruntime.InferenceSession(
        to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run([v.name for v in outputs], feeds)


SHAPES = [
    ((2, 3), (2, 3)),
    ((2, 3), (3,)),
    ((2, 3), (1,)),
    ((2, 3), ()),
    ((2, 3), (2, 1)),
    ((2, 3), (1, 3)),
    ((4, 2, 3), (2, 1)),
    ((4, 2, 3), (1, 1, 1)),
    ((4, 1, 3), (1, 3)),
    ((1, 1), (1,)),
    ((), ()),
]


def _known(shape: tuple[int, ...], how: str) -> Any:
    return {"lengths": shape, "rank": [None] * len(shape), "nothing": None}[how]


@pytest.mark.share(2)
@pytest.mark.parametrize("how", ["lengths", "rank", "nothing"])
@pytest.mark.parametrize(("outer", "inner"), SHAPES, ids=str)
@pytest.mark.parametrize("opset", [16, 18])
def test_sum_to_undoes_broadcasting_whatever_is_known(
    outer: tuple[int, ...], inner: tuple[int, ...], how: str, opset: int
):
    model = empty(("x", _known(outer, how)), ("like", _known(inner, how)), opset=opset)
    b = Builder(model)
    x = np.arange(np.prod(outer), dtype="f").reshape(outer)
    total = b.op("Identity", sum_to(b, *model.graph.inputs))
    [found] = evaluate(model, total, x=x, like=np.zeros(inner, "f"))
    padded = (1,) * (len(outer) - len(inner)) + inner
    axes = tuple(i for i, n in enumerate(padded) if n == 1)
    np.testing.assert_array_equal(found, x.sum(axes, keepdims=True).reshape(inner))


def test_a_length_that_may_be_one_is_decided_at_run_time():
    model = empty(("x", ["N", 3]), ("like", ["M", 3]))
    b = Builder(model)
    total = sum_to(b, *model.graph.inputs)
    [found] = evaluate(model, total, x=np.ones((4, 3), "f"), like=np.zeros((1, 3), "f"))
    assert found.tolist() == [[4, 4, 4]]


def test_a_number_takes_the_type_of_the_other_operand():
    model = empty(("x", [3]))
    b = Builder(model)
    half = b.cast(model.graph.inputs[0], ir.DataType.FLOAT16)
    assert b.mul(half, 2).dtype is ir.DataType.FLOAT16
    assert b.sub(1, half).dtype is ir.DataType.FLOAT16


def test_computed_axes_are_refused_where_the_opset_has_no_place_for_them():
    model = empty(("x", [2, 3]), opset=16)
    b = Builder(model)
    x = model.graph.inputs[0]
    axes = b.range(0, b.squeeze(b.op("Shape", b.op("Shape", x)), [0]))
    with pytest.raises(GradientError, match=r"ReduceMax takes no computed axes before opset 18"):
        b.reduce("ReduceMax", x, axes)


def test_an_unknown_type_is_reported_with_its_value():
    model = empty(("x", [3]))
    b = Builder(model)
    unknown = b.op("Mystery", model.graph.inputs[0], domain="somewhere")
    with pytest.raises(GradientError, match=r"value 'gradient/Mystery_0'.*type.*not known"):
        b.type_of(unknown)


@pytest.mark.parametrize("lengths", [(), (2, 3), None])
def test_what_takes_a_place_has_the_shape_that_was_there_even_of_a_scalar(lengths):
    shape = None if lengths is None else ir.Shape(lengths)
    old = ir.Value(name="y", type=ir.TensorType(ir.DataType.FLOAT), shape=shape)
    new = ir.Value(name="z", shape=ir.Shape([7]))
    take_place(new, old)
    assert (new.name, new.dtype) == ("y", ir.DataType.FLOAT)
    assert new.shape.dims == ((7,) if lengths is None else lengths)
