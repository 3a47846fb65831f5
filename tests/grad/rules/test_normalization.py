from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from gradient_nodes import check_vjp, differentiated
from gradient_table import (
    NEWEST,
    Constant,
    Row,
    normal,
    positive,
)
from loop_models import differentiated as differentiated_text
from loop_models import model_of

Array = np.ndarray[Any, Any]

BATCH = (normal, normal, normal, normal, positive)
ROWS = [
    *(
        Row(
            "BatchNormalization",
            ((3, 2, *space), (2,), (2,), (2,), (2,)),
            attributes,
            opset=opset,
            generate=BATCH,
        )
        for opset, space, attributes in [
            (16, (2, 3), {}),
            (16, (2, 3), {"epsilon": 1e-2}),
            (17, (), {}),
            (18, (4,), {}),
            (NEWEST, (2, 2, 2), {"epsilon": 1e-3}),
        ]
    ),
    *(
        Row(
            "BatchNormalization",
            ((3, 2, *space), (2,), (2,), Constant([0.1, 0.2]), Constant([1.0, 2.0])),
            {"training_mode": 1, **attributes},
            opset=opset,
            outputs=3,
            differentiable=1,
        )
        for opset, space, attributes in [
            (16, (2, 3), {}),
            (17, (), {"epsilon": 1e-2}),
            (18, (4,), {"momentum": 0.5}),
            (NEWEST, (2, 2, 2), {}),
        ]
    ),
    Row("InstanceNormalization", ((2, 3, 4), (3,), (3,)), opset=16),
    Row("InstanceNormalization", ((2, 3, 4, 2), (3,), (3,)), {"epsilon": 1e-2}),
    Row("InstanceNormalization", ((2, 3, 2, 2, 2), (3,), (3,)), opset=NEWEST),
    Row("LayerNormalization", ((2, 3, 4), (4,), (4,)), opset=17),
    Row("LayerNormalization", ((2, 3, 4), (4,)), {"epsilon": 1e-2}),
    Row("LayerNormalization", ((2, 3, 4), (3, 4), (3, 4)), {"axis": 1}),
    Row("LayerNormalization", ((2, 3, 4), (2, 3, 4), (2, 3, 4)), {"axis": 0}, opset=NEWEST),
    Row("LayerNormalization", ((2, 3, 4), (3, 4), (4,)), {"axis": -2}),
    Row("LayerNormalization", ((2, 3, 4), (1,), (4,)), {"axis": 2}),
    # The outputs mean and 1 / deviation get gradients too; ONNX Runtime has them in float32 only.
    *(
        Row(
            "LayerNormalization",
            shapes,
            {"stash_type": 11, "axis": axis},
            outputs=3,
            reference=True,
            kernel=False,
        )
        for axis, shapes in [(-1, ((2, 3, 4), (4,), (4,))), (1, ((2, 3, 4), (3, 4), (3, 4)))]
    ),
    Row("GroupNormalization", ((2, 4, 3), (2,), (2,)), {"num_groups": 2}, opset=18),
    Row(
        "GroupNormalization", ((2, 4, 3), (4,), (4,)), {"num_groups": 2, "stash_type": 11}, opset=21
    ),
    Row(
        "GroupNormalization",
        ((2, 4, 2, 3), (4,), (4,)),
        {"num_groups": 4, "epsilon": 1e-2, "stash_type": 11},
        opset=NEWEST,
    ),
    Row("RMSNormalization", ((2, 3, 4), (4,)), opset=24),
    Row("RMSNormalization", ((2, 3, 4), (3, 4)), {"axis": 1, "epsilon": 1e-2}, opset=NEWEST),
    # ONNX Runtime has no float64 kernel, and the standard's function is for float32 only.
    Row("MeanVarianceNormalization", ((2, 3, 4, 2),), opset=16, reference=True),
    Row("MeanVarianceNormalization", ((2, 3, 4, 2),), {"axes": [0, 1]}, reference=True),
    *(
        Row("LpNormalization", ((2, 3, 4),), attributes, opset=opset)
        for opset, attributes in [
            (16, {}),
            (16, {"p": 1}),
            (18, {"axis": 1}),
            (18, {"axis": 0, "p": 1}),
            (NEWEST, {"axis": -2, "p": 2}),
        ]
    ),
    *(
        Row("LRN", shape, attributes, opset=opset)
        for opset, shape, attributes in [
            (16, ((2, 5, 3, 1),), {"size": 3}),
            (16, ((2, 5, 2, 2),), {"size": 5, "alpha": 0.1, "beta": 0.5, "bias": 2.0}),
            (NEWEST, ((2, 2, 2, 2),), {"size": 7, "alpha": 0.5}),
        ]
    ),
    # ONNX Runtime wants odd sizes and four axes.
    Row("LRN", ((2, 5, 2),), {"size": 4, "alpha": 0.5}, kernel=False),
]


SHAPE = (2, 3, 4)


def _layer(axis: int | None = None, outputs: int = 1, **attributes: Any) -> Row:
    scale = SHAPE[-1 if axis is None else axis :]
    given = attributes if axis is None else {"axis": axis, **attributes}
    inputs = (SHAPE, scale, scale)
    return Row("LayerNormalization", inputs, given, opset=17, outputs=outputs, differentiable=1)


@pytest.mark.parametrize(
    ("dtype", "stash", "computes"),
    [
        (ir.DataType.FLOAT, None, ir.DataType.FLOAT),
        (ir.DataType.FLOAT16, None, ir.DataType.FLOAT),
        (ir.DataType.FLOAT16, 1, ir.DataType.FLOAT),
        (ir.DataType.DOUBLE, None, ir.DataType.DOUBLE),
        (ir.DataType.DOUBLE, 1, ir.DataType.DOUBLE),
    ],
)
def test_a_layer_normalization_is_differentiated_in_the_wider_type(
    dtype: ir.DataType, stash: int | None, computes: ir.DataType
) -> None:
    attributes = {} if stash is None else {"stash_type": stash}
    model = differentiated(_layer(-1, **attributes), "x0", dtype=dtype)
    means = [n for n in model.graph if n.op_type == "ReduceMean"]
    assert means
    assert {n.outputs[0].dtype for n in means} == {computes}
    casts = [n for n in model.graph if n.op_type == "Cast"]
    assert bool(casts) is (dtype is not computes)


LOW = """(float16[2, 3, 4] x, float16[3] s, float16[3] b) => (float16[2, 3, 4] y)
    <float[3] m = {0, 0, 0}, float[3] v = {1, 1, 1}> { %s }"""


@pytest.mark.parametrize(
    "node",
    [
        "y = BatchNormalization(x, s, b, m, v)",
        "y, rm, rv = BatchNormalization<training_mode = 1>(x, s, b, m, v)",
    ],
)
def test_a_batch_normalization_is_differentiated_in_the_type_of_its_statistics(node: str) -> None:
    model = model_of(LOW % node)
    differentiated_text(model, ["x", "s", "b"])
    products = [n.outputs[0].dtype for n in model.graph if n.op_type == "Sub"]
    assert products
    assert set(products) == {ir.DataType.FLOAT}


@pytest.mark.parametrize("p", [1, 2])
def test_where_a_norm_is_0_the_gradient_is(p: int) -> None:
    x = np.array([[0.0, 0], [0.25, 0]])
    row = Row("LpNormalization", ((2, 2),), {"p": p}, generate=lambda r, s: x)
    check_vjp(row, [[[1, 2], [3, 5]]], [[[0, 0], [0, 20]]])
