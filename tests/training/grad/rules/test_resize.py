from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from gradient_nodes import check_opened, counts, nodes, operators
from gradient_table import (
    NEWEST,
    Constant,
    Fed,
    Row,
    check_difference,
    check_float32,
    differentiate,
    forward,
    prepare,
    second_views,
)

import amp_rewrite as amp
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.training.grad import GradientError


def _scales(*numbers: float) -> Constant:
    return Constant(np.array(numbers, np.float32))


def _sizes(*numbers: int) -> Constant:
    return Constant(np.array(numbers, np.int64))


IMAGE = (2, 2, 3, 4)
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
            (13, _scales(1, 1, 2, 1.5), {}),
            (18, _scales(1, 1, 0.7, 0.5), {}),
            (18, _scales(1, 1, 2, 2), {"coordinate_transformation_mode": "align_corners"}),
            (18, _scales(1, 1, 2, 2), {"coordinate_transformation_mode": "asymmetric"}),
            (NEWEST, _scales(1, 1, 2, 3), {"coordinate_transformation_mode": "pytorch_half_pixel"}),
        ]
    ),
    Row("Resize", (IMAGE, None, None, _sizes(2, 2, 5, 7)), {"mode": "nearest"}, opset=13),
    Row("Resize", (IMAGE, None, None, _sizes(2, 2, 5, 7)), {"mode": "linear"}),
    Row("Resize", (IMAGE, None, None, _sizes(5, 7)), {"mode": "linear", "axes": [2, 3]}),
    Row("Resize", ((2, 2, 4), None, _scales(1, 1, 2)), {"mode": "nearest"}),
    Row("Resize", ((2, 2, 2, 3, 2), None, _scales(1, 1, 2, 1, 2)), {"mode": "nearest"}),
    Row("Resize", (IMAGE, None, _scales(1, 1, 2, 2)), {"mode": "cubic"}),
]
ENLARGED, SHRUNK = _scales(1, 1, 2, 1.5), _scales(1, 1, 0.6, 0.7)
TRANSFORMATIONS = [
    (13, "half_pixel"),
    (13, "pytorch_half_pixel"),
    (13, "align_corners"),
    (13, "asymmetric"),
    (19, "half_pixel_symmetric"),
]
ROUNDINGS = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
SMALL = (1, 2, 4, 5)
CROP = {"coordinate_transformation_mode": "tf_crop_and_resize"}
REGION = _scales(0, 0, 0.2, 0.1, 1, 1, 0.8, 1.2)
GRID = [
    *(
        Row(
            "Resize",
            (SMALL, None, scales),
            {"coordinate_transformation_mode": where, **attributes},
            opset=max(opset, since),
        )
        for scales in (ENLARGED, SHRUNK)
        for opset, where in TRANSFORMATIONS
        for since, attributes in [
            *((13, {"mode": "nearest", "nearest_mode": rounding}) for rounding in ROUNDINGS),
            (13, {"mode": "linear"}),
            (13, {"mode": "cubic"}),
            (13, {"mode": "cubic", "exclude_outside": 1, "cubic_coeff_a": -0.5}),
            (18, {"mode": "linear", "antialias": 1}),
            (18, {"mode": "cubic", "antialias": 1}),
        ]
    ),
    *(
        Row("Resize", (SMALL, REGION, *how), {"mode": mode, **CROP}, opset=opset)
        for opset in (13, NEWEST)
        for mode in ("nearest", "linear")
        for how in [(ENLARGED,), (None, _sizes(1, 2, 6, 7))]
    ),
    Row(
        "Resize",
        (SMALL, _scales(0.2, 0.1, 0.8, 1.2), _scales(2, 1.5)),
        {"mode": "linear", "axes": [2, 3], **CROP},
    ),
]
# ONNX Runtime takes sizes of unknown number for none.
FED = Row("Resize", (IMAGE, None, None, Fed([2, 2, 5, 7])), {"mode": "linear"})


@pytest.mark.parametrize("row", [*ROWS, FED], ids=str)
def test_the_gradient_of_a_resize_equals_the_difference_quotient(row: Row) -> None:
    check_difference(row, static=True)


@pytest.mark.parametrize("row", second_views(ROWS), ids=str)
def test_the_gradient_of_a_resize_needs_no_static_lengths(row: Row) -> None:
    check_difference(row, static=False)


@pytest.mark.share(2)
@pytest.mark.parametrize("row", second_views(ROWS), ids=str)
def test_the_gradient_of_a_resize_runs_in_float32(row: Row) -> None:
    check_float32(row)


@pytest.mark.share(7, each="row.op")
@pytest.mark.parametrize("row", GRID, ids=str)
def test_every_mode_of_resize_has_a_gradient(row: Row) -> None:
    check_difference(row, static=True)


@pytest.mark.share(7, each="row.op")
@pytest.mark.parametrize("row", second_views(GRID), ids=str)
def test_every_mode_of_resize_needs_no_static_lengths(row: Row) -> None:
    check_difference(row, static=False)


@pytest.mark.share(5, each="row.op")
@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize("row", second_views(GRID), ids=str)
def test_every_mode_of_resize_in_float32_is_the_transpose_of_what_runs(
    row: Row, static: bool
) -> None:
    # Resizing is linear: <u, f(x)> = <vjp(u), x>. Where scales are no whole numbers, ONNX Runtime
    # and the reference evaluator, which stands for it in float64, place samples differently.
    at = prepare(row, ir.DataType.FLOAT, static=static)
    products = at.gradients()["x0"] * at.floats["x0"]
    allowed = FLOAT32.rtol * float(np.abs(products).sum())
    assert abs(at.loss(at.floats) - float(products.sum())) <= allowed


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


@pytest.mark.parametrize(
    ("row", "changed"),
    [
        (Row("Resize", (IMAGE, None, _scales(1, 1, 2, 2)), {"mode": "nearest"}), 2),
        (Row("Resize", (IMAGE, None, _scales(1, 1, 1, 2)), {"mode": "nearest"}), 1),
        (Row("Resize", (IMAGE, None, _scales(1, 1, 0.5, 1)), {"mode": "nearest"}), 1),
        (Row("Resize", (IMAGE, None, _scales(1, 1, 1, 1)), {"mode": "nearest"}), 0),
        (Row("Resize", (IMAGE, None, _scales(3, 1, 1, 1)), {"mode": "nearest"}), 1),
        (Row("Resize", (IMAGE, None, _scales(2), None), {"mode": "nearest", "axes": [-1]}), 1),
        (
            Row("Resize", (IMAGE, None, _scales(1, 2), None), {"mode": "nearest", "axes": [-1, 2]}),
            1,
        ),
    ],
    ids=str,
)
def test_an_axis_that_stays_takes_no_product(row: Row, changed: int) -> None:
    assert counts(row)["MatMul"] == counts(row, opened=["x0"])["MatMul"] == changed
    check_opened(row, "x0")


def test_the_lengths_of_sizes_that_stay_are_known_only_with_those_of_the_input() -> None:
    row = Row("Resize", (IMAGE, None, None, _sizes(2, 2, 3, 7)), {"mode": "nearest"})
    assert counts(row)["MatMul"] == 1
    assert counts(row, opened=["x0"])["MatMul"] == 4
    check_opened(row, "x0")


@pytest.mark.parametrize(("length", "is_constant"), [(3, True), (256, True), (257, False)])
def test_the_identity_of_a_short_axis_is_a_constant(length: int, is_constant: bool) -> None:
    row = Row("Resize", ((1, length), None, _scales(1, 2)), {"mode": "nearest"})
    assert ("Range" not in operators(row)) is is_constant


@pytest.mark.parametrize(
    ("x", "scales", "added"),
    [
        ((2, 3, 4), (1, 1, 2), ["Transpose", "MatMul"]),
        ((2, 3, 4), (1, 2, 1), ["MatMul"]),
        ((2, 3, 4), (2, 1, 1), ["Transpose", "Transpose", "MatMul", "Transpose"]),
        ((2, 3, 2, 3), (1, 3, 1, 1), ["Transpose", "Transpose", "MatMul", "Transpose"]),
    ],
)
def test_the_last_two_axes_take_a_product_in_place(
    x: tuple[int, ...], scales: tuple[int, ...], added: list[str]
) -> None:
    row = Row("Resize", (x, None, _scales(*scales)), {"mode": "nearest"})
    assert [op for op in operators(row) if op in ("Transpose", "MatMul")] == added
    check_difference(row, static=True)


@pytest.mark.parametrize("opset", [13, 17, 18, NEWEST])
@pytest.mark.parametrize("by_sizes", [False, True])
def test_one_axis_is_resized_by_itself_where_the_opset_can(opset: int, by_sizes: bool) -> None:
    how = (None, _sizes(2, 2, 3, 7)) if by_sizes else (_scales(1, 1, 1, 1.75),)
    row = Row("Resize", (IMAGE, None, *how), {"mode": "linear"}, opset=opset)
    [resize] = [node for node in nodes(row) if node.op_type == "Resize"]
    assert list(resize.attributes.get_ints("axes", ())) == ([1] if opset >= 18 else [])
    check_opened(row, "x0")


CROPS = [
    Row("Resize", (SMALL, REGION, ENLARGED), {"mode": "linear", **CROP}, opset=17),
    Row("Resize", (SMALL, REGION, None, _sizes(1, 2, 6, 7)), {"mode": "linear", **CROP}),
    Row(
        "Resize",
        (SMALL, _scales(0.1, 0.2, 1.2, 0.8), _scales(2, 1.5)),
        {"mode": "linear", "axes": [2, 3], **CROP},
    ),
]


@pytest.mark.parametrize("row", CROPS, ids=str)
def test_a_region_that_is_cropped_is_resized_back(row: Row) -> None:
    check_difference(row, static=True)
