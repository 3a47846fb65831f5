from __future__ import annotations

import pytest
from gradient_table import (
    NEWEST,
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


@pytest.mark.share(2)
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_an_elementwise_gradient_equals_the_difference_quotient(row: Row):
    check_difference(row, static=True)


@pytest.mark.share(7, each="row.op")
@pytest.mark.parametrize("row", second_views(row for row in ROWS if not row.lengths), ids=str)
def test_an_elementwise_gradient_needs_no_static_lengths(row: Row):
    check_difference(row, static=False)


@pytest.mark.share(7, each="row.op")
@pytest.mark.parametrize("row", second_views(row for row in ROWS if row.kernel), ids=str)
def test_an_elementwise_gradient_runs_in_float32(row: Row):
    check_float32(row)
