from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from gradient_table import (
    NEWEST,
    Constant,
    Fed,
    Row,
    differentiate,
    forward,
)

import amp_rewrite as amp
from amp_rewrite.grad import GradientError


def _scales(*numbers: float) -> Constant:
    return Constant(np.array(numbers, np.float32))


def _sizes(*numbers: int) -> Constant:
    return Constant(np.array(numbers, np.int64))


IMAGE = (2, 2, 3, 4)
CROP = {"coordinate_transformation_mode": "tf_crop_and_resize"}
REGION = _scales(0, 0, 0.2, 0.1, 1, 1, 0.8, 1.2)
ROWS = [
    *(
        Row("Resize", (IMAGE, None, _scales(1, 1, 2, 2)), {"mode": "nearest", **attributes})
        for attributes in [
            {},
            {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
            {"nearest_mode": "round_prefer_ceil"},
            {"coordinate_transformation_mode": "align_corners", "nearest_mode": "ceil"},
            {"coordinate_transformation_mode": "pytorch_half_pixel"},
        ]
    ),
    *(
        Row("Resize", (IMAGE, None, scales), {"mode": "linear", **attributes}, opset=opset)
        for opset, scales, attributes in [
            (16, _scales(1, 1, 2, 1.5), {}),
            (18, _scales(1, 1, 0.7, 0.5), {}),
            (18, _scales(1, 1, 2, 2), {"coordinate_transformation_mode": "align_corners"}),
            (18, _scales(1, 1, 2, 2), {"coordinate_transformation_mode": "asymmetric"}),
            (NEWEST, _scales(1, 1, 2, 3), {"coordinate_transformation_mode": "pytorch_half_pixel"}),
        ]
    ),
    Row("Resize", (IMAGE, None, None, _sizes(2, 2, 5, 7)), {"mode": "nearest"}, opset=16),
    Row("Resize", (IMAGE, None, None, _sizes(2, 2, 5, 7)), {"mode": "linear"}),
    Row("Resize", (IMAGE, None, None, _sizes(5, 7)), {"mode": "linear", "axes": [2, 3]}),
    Row("Resize", ((2, 2, 4), None, _scales(1, 1, 2)), {"mode": "nearest"}),
    Row("Resize", ((2, 2, 2, 3, 2), None, _scales(1, 1, 2, 1, 2)), {"mode": "nearest"}),
    Row("Resize", (IMAGE, None, _scales(1, 1, 2, 2)), {"mode": "cubic"}),
    Row("Resize", (IMAGE, None, _scales(1, 1, 0.6, 0.7)), {"mode": "cubic", "antialias": 1}),
    *(
        Row("Resize", (IMAGE, REGION, *how), {"mode": "linear", **CROP}, opset=opset)
        for opset in (16, NEWEST)
        for how in [(_scales(1, 1, 2, 1.5),), (None, _sizes(2, 2, 6, 7))]
    ),
]
ENLARGED, SHRUNK = _scales(1, 1, 2, 1.5), _scales(1, 1, 0.6, 0.7)
ROWS.append(
    Row(
        "Resize",
        (IMAGE, None, None, Fed([2, 2, 5, 7])),
        {"mode": "linear"},
        lengths="ONNX Runtime ignores sizes of unknown number",
    )
)


def test_a_resize_whose_recorded_shape_has_another_rank_is_refused_by_name() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
        g (float[1, 1, 2, 2] x) => (float loss)
        <float[1, 1, 2, 2] w = {1, 2, 3, 4}, float[4] s = {1, 1, 2, 2}, float[4] y> {
            p = Mul (x, w)  y = Resize <mode = "nearest"> (p, , s)
            loss = ReduceSum <keepdims = 0> (y) }"""
    loss = amp.value(amp.load(onnx.parser.parse_model(text)), "loss")
    with pytest.raises(GradientError, match=r"recorded shape of a Resize.*found 1; expected 4"):
        amp.optimizers.GradientDescent(0.1).minimize(loss)


def test_a_resize_that_keeps_the_aspect_ratio_is_refused_by_name() -> None:
    attributes = {"keep_aspect_ratio_policy": "not_larger", "mode": "linear"}
    row = Row("Resize", (IMAGE, None, None, _sizes(2, 2, 5, 7)), attributes)
    model = forward(row, ir.DataType.FLOAT, static=True)
    with pytest.raises(GradientError, match=r"aspect ratio.*not_larger.*expected stretch"):
        differentiate(model, ["x0"])
