"""Gradients of arithmetic at ties, bounds and zeros, and how few nodes they take."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest
from gradient_nodes import check_vjp, counts, operators
from gradient_table import Constant, Fed, Generator, Row, check_difference, forward, positive
from loop_models import check

from amp_rewrite.training.grad import Builder, GradientError, gradients
from amp_rewrite.training.grad.rules.arithmetic import extra_output, known, rank_of
from amp_rewrite.training.graph.prepare import prepare


def of(*numbers: npt.ArrayLike) -> list[Generator]:
    """Return makers of float inputs that have these numbers."""
    return [lambda rng, shape, x=x: np.asarray(x, np.float64) for x in numbers]


def builder() -> Builder:
    graph = ir.Graph([], [], nodes=[], opset_imports={"": 18}, name="g")
    return Builder(ir.Model(graph, ir_version=8))


def value(name: str, *lengths: int | str | None) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(lengths))


PRODUCTS = ["Pow", "Mul", "Mul"]


@pytest.mark.parametrize(
    ("p", "added"),
    [
        (-1.0, PRODUCTS),
        (0.25, PRODUCTS),
        (0.5, ["Mul", "Div"]),
        (0.75, PRODUCTS),
        (1.0, []),
        (1.5, PRODUCTS),
        (2.0, ["Mul", "Mul"]),
        (3.0, PRODUCTS),
    ],
)
@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_power_that_is_a_number_takes_the_fewest_nodes(
    p: float, added: list[str], shape: tuple[int, ...]
) -> None:
    x, u = np.array([0.5, 1.5, 3.0]), np.array([1.0, -1.0, 2.0])
    row = Row("Pow", ((3,), Constant(np.full(shape, p))), generate=of(x))
    assert operators(row) == added
    check_vjp(row, [u], [u * p * x ** (p - 1)])


@pytest.mark.parametrize("shape", [(), (1, 1)])
def test_the_power_of_0_has_no_gradient(shape: tuple[int, ...]) -> None:
    model = forward(Row("Pow", ((2, 3), Constant(np.zeros(shape)))), ir.DataType.FLOAT, static=True)
    prepare(model)
    b = Builder(model)
    y = model.graph.outputs[0]
    assert gradients(b, {y: b.ones_like(y)}, [model.graph.inputs[0]]) == [None]


def test_powers_that_differ_are_no_number() -> None:
    row = Row("Pow", ((2, 3), Constant([2.0, 1.0, 3.0])), generate=of([[1, 2, 3], [4, 5, 6]]))
    check_vjp(row, [np.ones((2, 3))], [[[2, 1, 27], [8, 1, 108]]])


def test_the_gradients_of_a_power_are_numbers_where_logarithms_are_not() -> None:
    x, p = np.array([-0.5, 0, 0.5, 2, 0, 0, 4]), np.array([2.0, 2, 2, 3, 0, 1, 0])
    row = Row("Pow", ((7,), (7,)), generate=of(x, p))
    by_x = [-1, 0, 1, 12, 0, 1, 0]
    by_p = [0, 0, 0.25 * np.log(0.5), 8 * np.log(2), 0, 0, np.log(4)]
    check_vjp(row, [np.ones(7)], [by_x, by_p])


def test_the_gradient_of_a_square_takes_two_products() -> None:
    model = check("(float[3] x) => (float[3] y) { y = Mul(x, x) }", {"x": np.array([1.0, -2, 3])})
    made = [n.op_type for n in model.graph if (n.name or "").startswith("gradient/")]
    assert made == ["Mul", "Mul", "Identity"]


@pytest.mark.parametrize(
    ("op", "function"), [("Max", np.maximum.reduce), ("Min", np.minimum.reduce)]
)
@pytest.mark.parametrize("inputs", [1, 2, 3])
def test_equal_extrema_share_the_gradient(op: str, function: Any, inputs: int) -> None:
    numbers = np.array([[1.0, 2, 3, 4], [1.0, 5, -1, 4], [1.0, 5, 3, 0]])[:inputs]
    row = Row(op, ((4,),) * inputs, generate=of(*numbers))
    u = np.array([6.0, 4, 2, 8])
    equal = numbers == function(numbers)
    check_vjp(row, [u], [*(equal * u / equal.sum(0))])
    added = counts(row)
    assert not (inputs == 1 and added)
    assert added["Add"] == (inputs == 2)
    assert added["Sum"] == (inputs == 3)


X, U = np.array([-2.0, -1, 0, 1, 2]), np.array([1.0, 2, 4, 8, 16])


@pytest.mark.parametrize(
    ("bounds", "numbers", "expected"),
    [
        (((), ()), (-1, 1), [[0, 2, 4, 8, 0], 1, 16]),
        (((),), (-1,), [[0, 2, 4, 8, 16], 1]),
        ((None, ()), (0, 1), [[1, 2, 4, 8, 0], 16]),
        (((), ()), (0, 0), [[0, 0, 4, 0, 0], 3, 24]),
        (((), ()), (3, 0.5), [[0, 0, 0, 0, 0], 0, 31]),
        (((), ()), (3, 1), [[0, 0, 0, 0, 0], 0, 31]),
        ((), (), [U]),
    ],
)
def test_clip_passes_to_what_its_result_is(
    bounds: tuple[Any, ...], numbers: tuple[float, ...], expected: list[Any]
) -> None:
    check_vjp(Row("Clip", ((5,), *bounds), generate=of(X, *numbers)), [U], expected)


def test_where_passes_to_what_it_takes() -> None:
    row = Row("Where", (Fed([True, False, True]), (3,), (3,)))
    check_vjp(row, [[1, 2, 4]], [[1, 0, 4], [0, 2, 0]])


@pytest.mark.parametrize(
    ("op", "x", "expected"),
    [
        ("Abs", [-2, 0, 3], [-1, 0, 1]),
        ("Neg", [-2, 0, 3], [-1, -1, -1]),
        ("Exp", [0, 1, -1], np.exp([0, 1, -1])),
        ("Log", [0.5, 1, 4], [2, 1, 0.25]),
        ("Sqrt", [0.25, 1, 4], [1, 0.5, 0.25]),
        ("Reciprocal", [0.5, -1, 2], [-4, -1, -0.25]),
    ],
)
def test_a_function_of_one_variable_has_its_derivative(
    op: str, x: npt.ArrayLike, expected: npt.ArrayLike
) -> None:
    u = np.array([1.0, -2, 3])
    check_vjp(Row(op, ((3,),), generate=of(x)), [u], [u * np.asarray(expected)])


@pytest.mark.parametrize("op", ["Sum", "Mean"])
@pytest.mark.parametrize("inputs", [1, 2, 5])
def test_all_summands_get_the_same(op: str, inputs: int) -> None:
    share = 1 / inputs if op == "Mean" else 1
    check_vjp(Row(op, ((2,),) * inputs), [[3, -6]], [[3 * share, -6 * share]] * inputs)


@pytest.mark.parametrize("row", [
    Row("Sub", ((2, 3), (2, 1))),
    Row("Sub", ((3,), (2, 3))),
    Row("Div", ((2, 3), (3,)), generate=positive),
    Row("Div", ((3,), (2, 3)), generate=positive),
    Row("Mod", ((3, 4), (4,)), {"fmod": 1}, generate=positive),
    Row("Pow", ((3, 1), (4,)), generate=positive),
    Row("Pow", ((2, 3), Fed([2, 0, 3]))),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("static", [True, False])
def test_a_gradient_is_summed_where_its_input_was_broadcast(row: Row, static: bool) -> None:
    check_difference(row, static=static)


def test_what_is_subtracted_is_negated_after_the_sum() -> None:
    assert operators(Row("Sub", ((2, 3), (3,)))) == ["ReduceSum", "Neg"]
    assert operators(Row("Sub", ((3,), (3,)))) == ["Neg"]


def outputs(*names: str) -> ir.Node:
    made = [ir.Value(name=name or None) for name in names]
    return ir.Node("", "Op", [], outputs=made, name="n")


@pytest.mark.parametrize("index", [1, 2])
def test_a_node_gets_the_output_that_it_lacks(index: int) -> None:
    node = outputs("y")
    added = extra_output(builder(), node, index, ir.DataType.INT64, (2, "n"))
    assert added is node.outputs[index]
    assert len(node.outputs) == index + 1
    names = [output.name or "" for output in node.outputs]
    assert names == ["y", *[""] * (index - 1), f"y:{index}"]
    assert added.dtype is ir.DataType.INT64
    assert added.shape is not None
    assert list(added.shape) == [2, "n"]


def test_an_output_that_is_there_stays_what_it_is() -> None:
    node = outputs("y", "i", "", "k")
    node.outputs[1].type = ir.TensorType(ir.DataType.DOUBLE)
    found = extra_output(builder(), node, 1, ir.DataType.INT64, (2,))
    assert (found.name, found.dtype, found.shape) == ("i", ir.DataType.DOUBLE, None)
    assert [output.name or "" for output in node.outputs] == ["y", "i", "", "k"]
    unnamed = extra_output(builder(), node, 2, ir.DataType.INT64, None)
    assert (unnamed.name, unnamed.dtype, unnamed.shape) == ("y:2", ir.DataType.INT64, None)
    assert [output.name for output in node.outputs] == ["y", "i", "y:2", "k"]


def test_a_rule_is_given_a_gradient_and_a_rank() -> None:
    x = value("x", 2, None)
    assert known(x) is x
    with pytest.raises(ValueError, match="gradient of the first output"):
        known(None)
    node = outputs("y")
    assert rank_of(node, builder(), x) == 2
    with pytest.raises(GradientError, match="rank of the input is not known"):
        rank_of(node, builder(), ir.Value(name="z"))
