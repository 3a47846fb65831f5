"""Gradients of Slice and Pad: numbers go back to where they came from, as numpy's slices say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gradient_nodes import check_opened, check_vjp, counts, differentiated, nodes, operators, vjp
from gradient_table import NEWEST, Constant, Fed, Row, check_difference, over

from amp_rewrite.training.grad import GradientError

LENGTHS = (5, 6)
CASES: list[tuple[list[int], list[int], list[int] | None]] = [
    ([1, 2], [4, 5], None),
    ([1], [4], None),
    ([1], [4], [1]),
    ([-1], [100], [0]),
    ([-3], [100], [-1]),
    ([-100], [-2], [0]),
    ([2], [2], [0]),
    ([4], [2], [0]),
    ([7], [9], [-2]),
    ([0, -5], [5, -1], [1, 0]),
    ([0], [-6], [1]),
]


def sliced(
    starts: list[int], ends: list[int], axes: list[int] | None, steps: list[int] | None = None
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return what arrives at a slice of (5, 6), and what goes back."""
    index = [slice(None)] * 2
    for k, axis in enumerate(axes or range(len(starts))):
        index[axis] = slice(starts[k], ends[k], None if steps is None else steps[k])
    total = np.zeros(LENGTHS)
    shape = total[tuple(index)].shape
    arriving = np.arange(1.0, 1 + np.prod(shape)).reshape(shape)
    total[tuple(index)] = arriving
    return arriving, total


def row_of(kind: Any, *given: list[int] | None, opset: int = 18) -> Row:
    bounds = [None if numbers is None else kind(numbers) for numbers in given]
    while bounds[-1] is None:
        bounds.pop()
    return Row("Slice", (LENGTHS, *bounds), opset=opset)


@pytest.mark.parametrize("kind", [Constant, Fed])
@pytest.mark.parametrize(("starts", "ends", "axes"), CASES)
def test_a_slice_goes_back_to_its_place(
    starts: list[int], ends: list[int], axes: list[int] | None, kind: Any
) -> None:
    u, expected = sliced(starts, ends, axes)
    row = row_of(kind, starts, ends, axes)
    for known in ({}, {"opened": ["x0"]}, {"opened": ["x0", "x1", "x2", "x3"]}):
        check_vjp(row, [u], [expected], **known)


@pytest.mark.parametrize(("starts", "ends", "axes"), CASES)
def test_a_slice_that_is_known_takes_one_node(
    starts: list[int], ends: list[int], axes: list[int] | None
) -> None:
    assert operators(row_of(Constant, starts, ends, axes)) == ["Pad"]
    assert "Where" in operators(row_of(Fed, starts, ends, axes))
    ones = [1] * len(starts)
    assert operators(row_of(Constant, starts, ends, axes, ones)) == ["Pad"]
    assert "ScatterElements" in operators(row_of(Fed, starts, ends, axes, ones))


@pytest.mark.parametrize("kinds", [(Constant, Fed, Constant), (Fed, Constant, Constant),
                                   (Constant, Constant, Fed)])  # fmt: skip
def test_a_slice_is_known_only_if_all_its_bounds_are(kinds: tuple[Any, ...]) -> None:
    u, expected = sliced([1], [-1], [-1])
    given = [kind([number]) for kind, number in zip(kinds, (1, -1, -1), strict=True)]
    check_vjp(Row("Slice", (LENGTHS, *given)), [u], [expected])


STEPS: list[tuple[list[int], list[int], list[int] | None, list[int]]] = [
    ([0], [5], [0], [2]),
    ([-1], [-7], [1], [-1]),
    ([4, 5], [0, -100], [0, 1], [-2, -3]),
    ([1, 0], [4, 6], [0, 1], [1, 4]),
    ([1, 0], [4, 6], [-1, 0], [3, 1]),
    ([1, 1], [5, 6], None, [2, 3]),
    ([3], [0], None, [-1]),
    ([1], [4], [1], [1]),
]


@pytest.mark.parametrize("kind", [Constant, Fed])
@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize(("starts", "ends", "axes", "steps"), STEPS)
def test_a_slice_in_steps_goes_back_to_its_places(
    starts: list[int],
    ends: list[int],
    axes: list[int] | None,
    steps: list[int],
    opset: int,
    kind: Any,
) -> None:
    u, expected = sliced(starts, ends, axes, steps)
    row = row_of(kind, starts, ends, axes, steps, opset=opset)
    check_vjp(row, [u], [expected])
    check_vjp(row, [u], [expected], opened=["x0", "x1", "x2", "x3", "x4"])


@pytest.mark.parametrize("kind", [Constant, Fed])
def test_bounds_in_int32_are_as_good(kind: Any) -> None:
    given = [kind(np.array(n, np.int32)) for n in ([1, 0], [5, -1], [1, 0], [2, 1])]
    u, expected = sliced([1, 0], [5, -1], [1, 0], [2, 1])
    check_vjp(Row("Slice", (LENGTHS, *given)), [u], [expected])


def test_only_axes_with_steps_are_scattered_to() -> None:
    known = row_of(Constant, [1, 0], [4, 6], [0, 1], [1, 4])
    assert counts(known)["ScatterElements"] == 2
    [once] = {
        n.attributes.get_string("reduction", "") for n in nodes(known) if "Scatt" in n.op_type
    }
    assert once == ""
    computed = row_of(Fed, [1], [4], [1], [2])
    assert counts(computed)["ScatterElements"] == 3 + 2


def test_steps_along_axes_that_are_fed_need_the_rank() -> None:
    message = r"'node'.*steps needs its axes, or the rank"
    with pytest.raises(GradientError, match=message):
        differentiated(row_of(Fed, [1], [4], [1], [2]), rankless=["x0"])


@pytest.mark.parametrize("kind", [Constant, Fed])
def test_bounds_may_be_short_integers(kind: Any) -> None:
    u, expected = sliced([-4], [5], [-1])
    given = [kind(np.array(n, np.int32)) for n in ([-4], [5], [-1])]
    check_vjp(Row("Slice", (LENGTHS, *given)), [u], [expected])


def padded(pads: list[int], u: np.ndarray[Any, Any], lengths: tuple[int, ...]) -> Any:
    """Return what goes back of what arrives at a Pad."""
    rank = len(lengths)
    total = np.zeros(lengths)
    into, out = [], []
    for axis, length in enumerate(lengths):
        before, behind = pads[axis], pads[axis + rank]
        into.append(slice(max(-before, 0), length - max(-behind, 0)))
        start = max(before, 0)
        out.append(slice(start, start + into[-1].stop - into[-1].start))
    total[tuple(into)] = u[tuple(out)]
    return total


PADS = [[1, 0, 2, 3], [0, 1, 0, 0], [0, 0, 0, 2], [-1, 2, 1, -2], [0, 0, 0, 0], [-1, -1, 0, -2]]


@pytest.mark.parametrize("kind", [Constant, Fed])
@pytest.mark.parametrize("pads", PADS)
@pytest.mark.parametrize("with_value", [False, True])
def test_padding_is_cut_off_and_its_number_gets_the_rest(
    pads: list[int], with_value: bool, kind: Any
) -> None:
    lengths = (4, 5)
    sizes = [n + pads[k] + pads[k + 2] for k, n in enumerate(lengths)]
    u = np.arange(1.0, 1 + np.prod(sizes)).reshape(sizes)
    back = padded(pads, u, lengths)
    row = Row("Pad", (lengths, kind(pads), *([()] if with_value else [])))
    expected = [back, u.sum() - back.sum()] if with_value else [back]
    check_vjp(row, [u], expected)
    check_opened(row, "x0")
    assert ("Neg" in operators(row, "x0")) is (kind is Fed)
    assert counts(row)["ReduceSum"] == (2 if with_value else 0)


AXES: list[tuple[list[int], list[int], list[int]]] = [
    ([1, 2], [1], [0, 1, 0, 0, 2, 0]),
    ([1, 2], [-1], [0, 0, 1, 0, 0, 2]),
    ([1, 2, 0, 3], [2, 0], [2, 0, 1, 3, 0, 0]),
]


@pytest.mark.parametrize("kind", [Constant, Fed])
@pytest.mark.parametrize(("amounts", "axes", "pads"), AXES)
def test_axes_that_are_not_named_are_not_padded(
    amounts: list[int], axes: list[int], pads: list[int], kind: Any
) -> None:
    lengths = (2, 3, 4)
    sizes = [n + pads[k] + pads[k + 3] for k, n in enumerate(lengths)]
    u = np.arange(1.0, 1 + np.prod(sizes)).reshape(sizes)
    row = Row("Pad", (lengths, kind(amounts), None, kind(axes)))
    check_vjp(row, [u], [padded(pads, u, lengths)])
    check_vjp(row, [u], [padded(pads, u, lengths)], opened=["x0"])
    assert (operators(row) == ["Pad"]) is (kind is Constant)
    assert ("ScatterElements" in operators(row)) is (kind is Fed)


FOLDS = [
    *(
        row
        for mode in ("reflect", "edge")
        for row in (
            *over((13, NEWEST), "Pad", ((3, 4), Constant([1, 2, 2, 3])), {"mode": mode}),
            Row("Pad", ((3, 4), Constant([0, 2, 0, 0])), {"mode": mode}),
            Row("Pad", ((3, 4), Constant([0, 0, 2, 0])), {"mode": mode}),
            Row("Pad", ((3, 4), Fed([1, 0, 0, 3])), {"mode": mode}),
            Row("Pad", ((3, 4), Constant([-1, 1, 1, -1])), {"mode": mode}),
            Row("Pad", ((3, 4), Fed([1, 2]), None, Constant([-1])), {"mode": mode}),
        )
    ),
    Row("Pad", ((3, 4), Constant([1, 2, 2, 3])), {"mode": "wrap"}, opset=19),
    Row("Pad", ((3, 4, 2), Constant([1, 2, 0, 0, 1, 1])), {"mode": "edge"}),
    Row("Pad", ((3, 4, 2), Fed([1, 2, 0, 0, 1, 1])), {"mode": "edge"}),
]


@pytest.mark.parametrize("row", FOLDS, ids=str)
def test_what_is_repeated_around_is_summed(row: Row) -> None:
    check_difference(row, static=True)
    check_opened(row, "x0")


@pytest.mark.parametrize(
    ("pads", "scatters"),
    [([1, 2, 2, 3], 2), ([0, 2, 0, 3], 1), ([1, 0, 0, 0], 1), ([0, 0, 2, 0], 1), ([0] * 4, 0)],
)
def test_axes_that_are_known_not_to_be_padded_take_nothing(pads: list[int], scatters: int) -> None:
    known = Row("Pad", ((3, 4), Constant(pads)), {"mode": "edge"})
    assert counts(known)["ScatterElements"] == scatters
    assert counts(Row("Pad", ((3, 4), Fed(pads)), {"mode": "edge"}))["ScatterElements"] == 2


def test_what_is_repeated_around_needs_the_rank() -> None:
    row = Row("Pad", ((3, 4), Constant([1, 2, 2, 3])), {"mode": "edge"})
    with pytest.raises(GradientError, match=r"'node'.*mode edge needs a known rank"):
        differentiated(row, rankless=["x0"])


@pytest.mark.parametrize("kind", [Constant, Fed])
@pytest.mark.parametrize("axes", [None, [1, 0], [-1, -2]])
def test_a_constant_around_needs_no_rank(kind: Any, axes: list[int] | None) -> None:
    given = () if axes is None else (None, Constant(axes))
    row = Row("Pad", ((3, 4), kind([1, 2, 2, 3]), *given))
    expected = vjp(row)["x0"]
    np.testing.assert_array_equal(vjp(row, rankless=["x0"])["x0"], expected)
