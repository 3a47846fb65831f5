"""Every rule against differences; rows of families without tests of their own are here."""

from __future__ import annotations

import numpy as np
import pytest
import test_convolution
import test_matrix_products
import test_normalization
import test_pooling
import test_reductions
import test_resize
import test_shapes
import test_softmax
import test_window
from gradient_table import (
    NEWEST,
    Array,
    Constant,
    Fed,
    Row,
    check_difference,
    check_float32,
    normal,
    over,
    positive,
    second_views,
    spread,
    unit,
)

BOTH = (16, NEWEST)

ARITHMETIC = [
    *over(BOTH, "Add", ((2, 3), (2, 3))),
    *over(BOTH, "Add", ((2, 3), (3,)), note="bias"),
    *over(BOTH, "Sub", ((2, 3), (2, 1))),
    *over(BOTH, "Mul", ((2, 3), (2, 3))),
    Row("Sub", ((3,), (2, 3))),
    Row("Add", ((2, 3), ())),
    Row("Add", ((2, 1, 3), (4, 1)), note="both sides broadcast"),
    Row("Mul", ((4, 2, 3), (1, 3)), note="leading and inner axes"),
    Row("Mul", ((1,), (2, 3))),
    Row("Mul", ((2, 3), Constant(2.5))),
    *over(BOTH, "Div", ((2, 3), (2, 3)), generate=positive),
    Row("Div", ((2, 3), (3,)), generate=positive),
    Row("Div", ((), (3, 2)), generate=positive),
    Row("Mod", ((3, 4), (3, 4)), {"fmod": 1}, generate=(normal, positive)),
    Row("Mod", ((3, 4), (4,)), {"fmod": 1}, generate=(normal, positive)),
    *over(BOTH, "Neg", ((2, 3),)),
    *over(BOTH, "Abs", ((2, 3),)),
    *over(BOTH, "Pow", ((2, 3), (2, 3)), generate=positive),
    Row("Pow", ((2, 3), (3,)), generate=positive),
    Row("Pow", ((2, 3), Constant(2.0))),
    Row("Pow", ((2, 3), Constant(3.0))),
    Row("Pow", ((2, 3), Constant([3]))),
    Row("Pow", ((2, 3), Constant(0.5)), generate=positive),
    Row("Pow", ((2, 3), Constant(1.0))),
    Row("Pow", ((2, 3), Constant(-1.5)), generate=positive),
    Row("Pow", ((2, 3), Fed([2.0, 0.0, 3.0]))),
    Row("Pow", ((2, 3), Fed([2, 1, 3]))),
    *over(BOTH, "Sqrt", ((2, 3),), generate=positive),
    *over(BOTH, "Reciprocal", ((2, 3),), generate=positive),
    *over(BOTH, "Exp", ((2, 3),)),
    *over(BOTH, "Log", ((2, 3),), generate=positive),
    *over(BOTH, "Sum", ((2, 3), (3,), (2, 1))),
    Row("Sum", ((2, 3),)),
    Row("Sum", ((2, 3), (2, 3))),
    *over(BOTH, "Mean", ((2, 3), (3,), ())),
    Row("Mean", ((2, 3),)),
    *over(BOTH, "Max", ((3, 4), (3, 4)), generate=spread),
    *over(BOTH, "Min", ((3, 4), (4,)), generate=normal),
    Row("Max", ((3, 4), (4,), (3, 1)), generate=normal),
    Row("Min", ((3, 4),)),
    Row("Max", ((3, 4), Constant(0.0))),
    *over(BOTH, "Clip", ((4, 4), Constant(-0.4), Constant(0.6)), generate=spread),
    *over(BOTH, "Clip", ((4, 4), (), ()), generate=(spread, lambda r, s: -0.41, lambda r, s: 0.62)),
    Row("Clip", ((4, 4),)),
    Row("Clip", ((4, 4), Constant(0.1)), generate=spread),
    Row("Clip", ((4, 4), None, ()), generate=(spread, spread, lambda r, s: 0.31)),
    Row("Clip", ((4, 4), (), ()), generate=(spread, lambda r, s: 0.5, lambda r, s: -0.5)),
    *over(BOTH, "Where", (Constant([[True], [False]]), (2, 3), (2, 3))),
    Row("Where", (Fed([True, False, True]), (2, 3), (1,))),
    Row("Where", (Fed([[True, False, True]] * 2), (), (2, 1))),
]

FUNCTIONS = [
    *over(BOTH, "Sin", ((2, 3),)),
    *over(BOTH, "Cos", ((2, 3),)),
    Row("Tan", ((2, 3),), generate=unit),
    Row("Asin", ((2, 3),), generate=unit),
    Row("Acos", ((2, 3),), generate=unit),
    Row("Atan", ((2, 3),)),
    Row("Sinh", ((2, 3),)),
    Row("Cosh", ((2, 3),)),
    *over(BOTH, "Tanh", ((2, 3),)),
    Row("Asinh", ((2, 3),)),
    Row("Acosh", ((2, 3),), generate=lambda r, s: r.uniform(1.5, 3, s)),
    Row("Atanh", ((2, 3),), generate=unit),
    *over(BOTH, "Erf", ((2, 3),)),
]

ACTIVATIONS = [
    *over(BOTH, "Sigmoid", ((3, 4),)),
    *over((16, 17, 18, 21, NEWEST), "Relu", ((3, 4),)),
    *over(BOTH, "LeakyRelu", ((3, 4),), {"alpha": 0.2}),
    Row("LeakyRelu", ((3, 4),)),
    Row("ThresholdedRelu", ((4, 4),), {"alpha": 0.3}, generate=spread),
    *over(BOTH, "PRelu", ((2, 3, 4), (3, 1))),
    Row("PRelu", ((2, 3), (2, 3))),
    Row("PRelu", ((2, 3), (1,))),
    *over(BOTH, "Elu", ((3, 4),), {"alpha": 0.7}),
    Row("Elu", ((3, 4),)),
    *over(BOTH, "Selu", ((3, 4),)),
    Row("Selu", ((3, 4),), {"alpha": 1.2, "gamma": 0.8}),
    *over(BOTH, "Celu", ((3, 4),), {"alpha": 1.5}, reference=True),
    *over(BOTH, "Softplus", ((3, 4),)),
    *over(BOTH, "Softsign", ((3, 4),)),
    *over(BOTH, "HardSigmoid", ((4, 4),), generate=spread),
    Row("HardSigmoid", ((6, 5),), {"alpha": 0.9, "beta": 0.3}, generate=spread),
    *over((16, NEWEST), "HardSwish", ((10, 10),), generate=spread),
    *over((20, NEWEST), "Gelu", ((3, 4),)),
    *over((20, NEWEST), "Gelu", ((3, 4),), {"approximate": "tanh"}),
    *over((18, NEWEST), "Mish", ((3, 4),)),
    *over((24, NEWEST), "Swish", ((3, 4),), kernel=False),
    Row("Swish", ((3, 4),), {"alpha": 1.7}, opset=NEWEST, kernel=False),
    Row("Shrink", ((4, 4),), {"lambd": 0.33, "bias": 0.2}, generate=spread, reference=True),
]

ROWS = ARITHMETIC + FUNCTIONS + ACTIVATIONS

REAL, COMPLEX = (2, 5, 4, 1), (2, 5, 4, 2)


def number(value: int) -> Constant:
    return Constant(np.array(value, np.int64))


TRANSFORMED = [
    *(
        Row("DFT", (shape, length), {"axis": axis, **attributes}, opset=17)
        for shape, length, axis, attributes in [
            (REAL, None, 1, {}),
            (REAL, None, 2, {"onesided": 1}),
            (REAL, None, 1, {"onesided": 1}),
            (COMPLEX, None, 1, {}),
            (COMPLEX, None, 1, {"inverse": 1}),
            (REAL, number(7), 1, {"onesided": 1}),
            (REAL, number(3), 1, {}),
            (COMPLEX, number(8), 2, {"inverse": 1}),
        ]
    ),
    *(
        Row("DFT", (shape, length, axis), attributes, opset=opset)
        for opset, shape, length, axis, attributes in [
            (20, COMPLEX, None, number(1), {"inverse": 1}),
            (NEWEST, COMPLEX, number(3), number(-2), {}),
            (20, (0, 5, 1), None, number(1), {}),
        ]
    ),
    Row("DFT", (REAL,), {"onesided": 1}, opset=20),
    *(
        Row("DFT", (COMPLEX, *length), {"inverse": 1, "onesided": 1}, opset=20)
        for length in [(), (number(7),), (number(4),), (number(9),)]
    ),
]
WINDOW, STEP = (4,), number(2)
FRAMED = [
    Row("STFT", ((2, 9, 1), STEP, WINDOW), {"onesided": 1}, opset=17),
    Row("STFT", ((2, 9, 1), STEP, WINDOW, number(4)), {"onesided": 0}, opset=17),
    Row("STFT", ((1, 8, 1), number(3), None, number(5)), {"onesided": 1}, opset=20),
    Row("STFT", ((1, 9, 2), Fed(np.array(1)), WINDOW), {"onesided": 0}, opset=NEWEST),
]


def inside(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Places from -0.9 to 0.9, none of which is at an element of an axis of 2 to 5."""
    return np.round(rng.uniform(-0.9, 0.9, shape), 1) + 0.017


def around(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Places from -2.6 to 2.6, many of which are outside."""
    return np.round(rng.uniform(-2.6, 2.6, shape), 1) + 0.017


def regions(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Regions x1, y1, x2, y2 in an image of 8 x 9, the last of which leaves it."""
    found = np.array(
        [[0.33, 1.21, 5.13, 6.41], [2.23, 0.17, 6.71, 3.37], [-3.13, 2.3, 9.77, 12.83]]
    )
    return found[: shape[0]]


IMAGE, GRID = (2, 3, 4, 5), (2, 3, 2, 2)
SAMPLED = [
    *(
        Row(
            "GridSample",
            (IMAGE, GRID if mode != "nearest" else Fed(made(np.random.default_rng(2), GRID))),
            {"mode": mode, **attributes},
            opset,
            (normal, made),
        )
        for opset, mode in [(20, "nearest"), (20, "linear"), (NEWEST, "cubic")]
        for made, attributes in [
            (inside, {}),
            (inside, {"align_corners": 1}),
            (around, {"padding_mode": "zeros"}),
            (around, {"padding_mode": "border"}),
            (around, {"padding_mode": "border", "align_corners": 1}),
            (around, {"padding_mode": "reflection"}),
            (around, {"padding_mode": "reflection", "align_corners": 1}),
        ]
    ),
    Row("GridSample", ((1, 2, 1, 3), (1, 2, 2, 2)), {"align_corners": 1}, 20, (normal, around)),
    Row("GridSample", ((1, 2, 2, 3, 4), (1, 2, 1, 3, 3)), {}, 22, (normal, around)),
    Row("GridSample", (IMAGE, (2, 0, 2, 2)), {}, 20, (normal, inside), note="no places"),
]


FIRST, MIXED = Fed(np.array([0, 0])), Constant(np.array([1, 0, 1]))
ALIGNED = [
    *(
        Row(
            "RoiAlign",
            ((2, 3, 8, 9), (3, 4), MIXED),
            attributes,
            opset,
            (normal, regions),
            kernel=opset == 16,
        )
        for opset, attributes in [
            (16, {"output_height": 2, "output_width": 3, "sampling_ratio": 2}),
            (16, {"output_height": 3, "output_width": 2}),
            (22, {"coordinate_transformation_mode": "output_half_pixel", "output_height": 2}),
            (NEWEST, {"spatial_scale": 0.5, "output_width": 2, "sampling_ratio": 1}),
        ]
    ),
    Row("RoiAlign", ((1, 2, 8, 9), (2, 4), FIRST), {"output_height": 2}, 16, (normal, regions)),
    Row("RoiAlign", ((1, 2, 8, 9), (0, 4), Fed([])), {"output_width": 2}, 16, (normal, regions)),
]

TABLES = (
    *(test_convolution, test_matrix_products, test_normalization, test_pooling, test_reductions),
    *(test_resize, test_shapes, test_softmax, test_window),
)
EVERY = [
    *(row for table in TABLES for row in table.ROWS),
    *(*ROWS, *TRANSFORMED, *FRAMED, *SAMPLED, *ALIGNED),
]


@pytest.mark.share(3, each="row.op")
@pytest.mark.parametrize("row", EVERY, ids=str)
def test_a_gradient_equals_the_difference_quotient(row: Row) -> None:
    check_difference(row, static=True)


@pytest.mark.share(5, each="row.op")
@pytest.mark.parametrize("row", second_views(row for row in EVERY if not row.lengths), ids=str)
def test_a_gradient_needs_no_static_lengths(row: Row) -> None:
    check_difference(row, static=False)


@pytest.mark.share(5, each="row.op")
@pytest.mark.parametrize("row", second_views(row for row in EVERY if row.kernel), ids=str)
def test_a_gradient_runs_in_float32(row: Row) -> None:
    check_float32(row)
