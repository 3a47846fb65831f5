from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gradient_nodes import check_opened, check_vjp, counts, nodes
from gradient_table import (
    NEWEST,
    Row,
    check_difference,
    check_float32,
    normal,
    second_views,
    spread,
)

MAX = [
    (13, (2, 2, 6), {"kernel_shape": [2]}),
    (13, (2, 2, 4, 6), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    (13, (2, 2, 5, 6), {"kernel_shape": [3, 2]}),
    (13, (2, 2, 5, 6), {"kernel_shape": [3, 3], "strides": [2, 1], "pads": [1, 1, 1, 1]}),
    (18, (2, 2, 5, 6), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    (18, (2, 2, 5, 6), {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
    (18, (2, 2, 7, 7), {"kernel_shape": [3, 2], "dilations": [2, 3]}),
    (18, (2, 2, 5, 5), {"kernel_shape": [2, 2], "auto_pad": "SAME_UPPER"}),
    (18, (2, 2, 5, 5), {"kernel_shape": [3, 2], "auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    (18, (2, 2, 5, 5), {"kernel_shape": [2, 2], "auto_pad": "VALID"}),
    (18, (2, 2, 4, 6), {"kernel_shape": [2, 2], "storage_order": 1}),
    (NEWEST, (2, 2, 3, 4, 4), {"kernel_shape": [2, 2, 2], "strides": [1, 2, 2]}),
]
AVERAGE = [
    (13, (2, 2, 6), {"kernel_shape": [2]}),
    (13, (2, 2, 4, 6), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    (18, (2, 2, 5, 6), {"kernel_shape": [3, 2], "strides": [2, 1]}),
    (18, (2, 2, 5, 6), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    (18, (2, 2, 5, 6), {"kernel_shape": [3, 3], "pads": [1, 0, 1, 1], "count_include_pad": 1}),
    (18, (2, 2, 5, 6), {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
    (
        NEWEST,
        (2, 2, 6, 6),
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1},
    ),
    (19, (2, 2, 7, 7), {"kernel_shape": [3, 2], "dilations": [2, 3]}),
    (18, (2, 2, 5, 5), {"kernel_shape": [2, 2], "auto_pad": "SAME_UPPER"}),
    (18, (2, 2, 5, 5), {"kernel_shape": [2, 3], "auto_pad": "SAME_LOWER"}),
    (18, (2, 2, 5, 5), {"kernel_shape": [2, 2], "auto_pad": "VALID", "strides": [2, 2]}),
    (NEWEST, (2, 2, 3, 4, 4), {"kernel_shape": [2, 2, 2], "strides": [1, 2, 2]}),
]
LP = [
    (13, (2, 2, 4, 6), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    (13, (2, 2, 5, 6), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "p": 1}),
    (18, (2, 2, 5, 6), {"kernel_shape": [3, 2], "p": 3, "strides": [2, 1]}),
    (18, (2, 2, 5, 6), {"kernel_shape": [2, 2], "dilations": [2, 2]}),
    (18, (2, 2, 6), {"kernel_shape": [2]}),
    (NEWEST, (2, 2, 5, 6), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    (NEWEST, (2, 2, 3, 4, 4), {"kernel_shape": [2, 2, 2], "ceil_mode": 1, "strides": [1, 2, 2]}),
]
ROWS = [
    *(Row("MaxPool", (x,), attrs, opset=opset, generate=spread) for opset, x, attrs in MAX),
    *(Row("AveragePool", (x,), attrs, opset=opset, generate=normal) for opset, x, attrs in AVERAGE),
    *(Row("LpPool", (x,), attrs, opset=opset, generate=normal) for opset, x, attrs in LP),
    *(
        Row(
            op,
            (x,),
            attributes,
            opset=opset,
            generate=spread,
            kernel=op != "GlobalLpPool" or opset < 22,  # ONNX Runtime has none from 22 on
        )
        for op, attributes in [
            ("GlobalAveragePool", {}),
            ("GlobalMaxPool", {}),
            ("GlobalLpPool", {}),
            ("GlobalLpPool", {"p": 3}),
        ]
        for opset, x in [(13, (2, 3, 4)), (18, (2, 3, 4, 2)), (NEWEST, (2, 3, 2, 2, 2))]
    ),
]


def _needs_lengths(row: Row) -> bool:
    """Return whether auto_pad pads by the input's lengths, for which the gradient needs them."""
    same = str(row.attributes.get("auto_pad", "")).startswith("SAME")
    return same and row.op != "MaxPool" and "strides" in row.attributes


@pytest.mark.share(2)
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_gradient_of_pooling_equals_the_difference_quotient(row: Row) -> None:
    check_difference(row, static=True)


@pytest.mark.share(4, each="row.op")
@pytest.mark.parametrize(
    "row", second_views(row for row in ROWS if not _needs_lengths(row)), ids=str
)
def test_the_gradient_of_pooling_needs_no_static_lengths(row: Row) -> None:
    check_difference(row, static=False)


@pytest.mark.share(7, each="row.op")
@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.kernel and not _needs_lengths(row)], ids=str
)
def test_the_gradient_of_pooling_runs_in_float32(row: Row) -> None:
    check_float32(row)


def _pool(op: str, x: tuple[int, ...], *, opset: int = 18, **attributes: Any) -> Row:
    made = spread if op == "MaxPool" else normal
    return Row(op, (x,), attributes, opset=opset, generate=made)


BLOCKS: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}


def test_side_by_side_blocks_of_two_are_found_again() -> None:
    for row in (_pool("MaxPool", (2, 3, 4, 6), **BLOCKS), _pool("MaxPool", (1, 2, 2, 2), **BLOCKS)):
        made = counts(row)
        assert made["SpaceToDepth"] == 1
        assert made["ScatterElements"] == 0
    batch_unknown = _pool("MaxPool", (2, 3, 4, 6), **BLOCKS, auto_pad="NOTSET")
    assert counts(batch_unknown)["SpaceToDepth"] == 1


@pytest.mark.parametrize(
    ("x", "attributes", "outputs"),
    [
        ((2, 3, 4, 6), {"kernel_shape": [2, 2], "strides": [2, 2]}, 2),
        ((2, 3, 5, 6), BLOCKS, 1),
        ((2, 3, 4, 7), BLOCKS, 1),
        ((2, 3, 4, 6), {**BLOCKS, "strides": [2, 1]}, 1),
        ((2, 3, 4, 6), {**BLOCKS, "strides": [3, 3]}, 1),
        ((2, 3, 4, 6), {**BLOCKS, "kernel_shape": [2, 3]}, 1),
        ((2, 3, 4, 6), {**BLOCKS, "kernel_shape": [1, 1]}, 1),
        ((2, 3, 4, 6), {**BLOCKS, "dilations": [2, 1]}, 1),
        ((2, 3, 4, 6), {**BLOCKS, "pads": [1, 0, 1, 0]}, 1),
        ((2, 3, 4, 6), {**BLOCKS, "auto_pad": "VALID"}, 1),
        ((2, 3, 4), {"kernel_shape": [2], "strides": [2]}, 1),
        ((2, 3, 4, 4, 4), {"kernel_shape": [2] * 3, "strides": [2] * 3}, 1),
    ],
)
def test_other_windows_take_indices(
    x: tuple[int, ...], attributes: dict[str, Any], outputs: int
) -> None:
    row = Row("MaxPool", (x,), attributes, generate=spread, outputs=outputs, differentiable=1)
    assert counts(row)["SpaceToDepth"] == 0
    check_difference(row, static=True)


def test_blocks_need_lengths_but_that_of_the_batch() -> None:
    row = _pool("MaxPool", (2, 3, 4, 6), **BLOCKS)
    assert counts(row, opened=["x0"])["SpaceToDepth"] == 0
    check_opened(row, "x0")


def test_of_equal_numbers_the_first_gets_the_gradient() -> None:
    x = np.array([[1.0, 1, 0, 2], [1, 1, 2, 0], [0, 0, 0, 0], [3, 3, 0, 5]])
    row = Row("MaxPool", ((1, 1, 4, 4),), BLOCKS, generate=lambda r, s: x.reshape(s))
    by_x = [[1, 0, 0, 2], [0, 0, 0, 0], [0, 0, 0, 0], [3, 0, 0, 4]]
    check_vjp(row, [[[[[1, 2], [3, 4]]]]], [[[by_x]]])
    whole = Row("GlobalMaxPool", ((1, 1, 4, 4),), generate=lambda r, s: np.minimum(x, 1).reshape(s))
    check_vjp(whole, [[[[[2]]]]], [[[[[2, 0, 0, 0], *[[0] * 4] * 3]]]])


@pytest.mark.parametrize(
    ("opset", "x", "attributes", "reductions"),
    [
        (18, (1, 1, 6), {"kernel_shape": [2], "strides": [2]}, [""]),
        (18, (1, 1, 6), {"kernel_shape": [2], "strides": [3]}, [""]),
        (18, (1, 1, 6), {"kernel_shape": [3], "strides": [2]}, ["add"]),
        (16, (1, 1, 6), {"kernel_shape": [3], "strides": [2]}, ["add"]),
        (15, (1, 1, 6), {"kernel_shape": [3], "strides": [2]}, ["", ""]),
        (15, (1, 1, 6), {"kernel_shape": [4], "strides": [2]}, ["", ""]),
        (15, (1, 1, 6), {"kernel_shape": [2], "strides": [2]}, [""]),
        (13, (1, 1, 6), {"kernel_shape": [3]}, ["", "", ""]),
        (13, (1, 1, 5, 6), {"kernel_shape": [3, 3], "strides": [2, 1]}, [""] * 6),
    ],
)
def test_what_windows_share_is_added_as_far_as_the_opset_can(
    opset: int, x: tuple[int, ...], attributes: dict[str, Any], reductions: list[str]
) -> None:
    made = nodes(_pool("MaxPool", x, opset=opset, **attributes))
    scatters = [node for node in made if node.op_type == "ScatterElements"]
    assert [n.attributes.get_string("reduction", "") for n in scatters] == reductions
    assert [n.attributes.get_int("axis", -9) for n in scatters] == [0] * len(reductions)
    sums = [len(node.inputs) for node in made if node.op_type == "Sum"]
    assert sums == ([len(reductions)] if len(reductions) > 1 else [])


@pytest.mark.parametrize(("attributes", "again"), [({}, 0), ({"storage_order": 0}, 0),
                                                   ({"storage_order": 1}, 1)])  # fmt: skip
def test_indices_come_from_the_node_itself_if_they_are_by_rows(
    attributes: dict[str, Any], again: int
) -> None:
    row = _pool("MaxPool", (1, 2, 5, 4), kernel_shape=[2, 2], **attributes)
    assert counts(row)["MaxPool"] == again


MAXIMA = [
    _pool("MaxPool", (1, 1, 66), opset=13, kernel_shape=[3]),
    _pool("MaxPool", (1, 2, 5, 6), opset=13, kernel_shape=[3, 2], strides=[2, 1]),
    _pool("MaxPool", (1, 2, 4, 5), opset=13, kernel_shape=[2, 2], dilations=[2, 3]),
    _pool("MaxPool", (2, 3, 4, 6), **BLOCKS),
    _pool("MaxPool", (1, 2, 4, 6), kernel_shape=[3, 2], storage_order=1, ceil_mode=1),
    _pool("MaxPool", (1, 2, 7), kernel_shape=[3], auto_pad="SAME_LOWER", strides=[3]),
]


@pytest.mark.parametrize("row", MAXIMA, ids=str)
def test_the_largest_of_every_window_gets_its_gradient(row: Row) -> None:
    check_difference(row, static=True)
    check_opened(row, "x0")


MEANS = [
    (_pool("AveragePool", (2, 2, 7), kernel_shape=[3], strides=[2]), False),
    (_pool("AveragePool", (2, 2, 6), kernel_shape=[3], strides=[2]), False),
    (_pool("AveragePool", (2, 2, 6), kernel_shape=[3], auto_pad="VALID"), False),
    (_pool("AveragePool", (2, 2, 6), kernel_shape=[3], pads=[1, 2], count_include_pad=1), False),
    (_pool("AveragePool", (2, 2, 6), kernel_shape=[3], pads=[2, 1]), True),
    (_pool("AveragePool", (2, 2, 6), kernel_shape=[3], strides=[2], ceil_mode=1), True),
    (
        _pool(
            *("AveragePool", (2, 2, 6, 4)),
            opset=19,
            kernel_shape=[3, 3],
            strides=[2, 2],
            pads=[1, 0, 1, 0],
            ceil_mode=1,
        ),
        True,
    ),
    (
        _pool(
            *("AveragePool", (2, 2, 6, 5)),
            opset=NEWEST,
            kernel_shape=[3, 2],
            strides=[2, 2],
            pads=[2, 0, 1, 1],
            ceil_mode=1,
            count_include_pad=1,
        ),
        True,
    ),
    (
        _pool(
            *("AveragePool", (1, 2, 6, 5, 4)),
            opset=19,
            kernel_shape=[2, 3, 2],
            dilations=[3, 1, 2],
            pads=[1, 1, 0, 0, 2, 1],
        ),
        True,
    ),
]


@pytest.mark.parametrize(("row", "counted"), MEANS, ids=str)
def test_elements_are_counted_only_where_windows_have_different_numbers(
    row: Row, counted: bool
) -> None:
    assert (counts(row)["Div"] > 0) is counted
    assert counts(row)["Range"] == 0
    check_difference(row, static=True)
    check_opened(row, "x0")


def _norms(op: str, p: int | None, x: tuple[int, ...], **attributes: Any) -> Row:
    return Row(op, (x,), attributes if p is None else {**attributes, "p": p}, generate=normal)


@pytest.mark.parametrize("p", [None, 1, 2, 3, 4])
@pytest.mark.parametrize("op", ["LpPool", "GlobalLpPool"])
def test_a_norm_of_windows_has_the_gradient_of_the_difference_quotient(
    op: str, p: int | None
) -> None:
    window: dict[str, Any] = {} if op == "GlobalLpPool" else {"kernel_shape": [2], "strides": [2]}
    row = _norms(op, p, (2, 2, 4), **window)
    check_difference(row, static=True)
    made = counts(row)
    assert made["Pow"] == {None: 1, 1: 0, 2: 1}.get(p, 2)
    assert made["Sign"] == (p == 1)


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("op", ["LpPool", "GlobalLpPool"])
def test_the_gradient_of_a_norm_is_0_where_the_norm_is(op: str, p: int) -> None:
    window: dict[str, Any] = {} if op == "GlobalLpPool" else {"kernel_shape": [2]}
    row = Row(op, ((1, 2, 2),), {**window, "p": p}, generate=lambda r, s: [[[0, 0], [0.25, 0]]])
    check_vjp(row, [[[[3], [5]]]], [[[[0, 0], [5, 0]]]])


@pytest.mark.parametrize("space", [(1,), (1, 1), (3,), (2, 3), (2, 1, 2)])
@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool"])
def test_a_pool_of_a_whole_channel_has_the_gradient_of_the_difference_quotient(
    op: str, space: tuple[int, ...]
) -> None:
    row = Row(op, ((2, 3, *space),), generate=spread)
    check_difference(row, static=True)
    check_opened(row, "x0")


def test_the_mean_of_a_channel_without_elements_has_an_empty_gradient() -> None:
    assert "Div" not in counts(Row("GlobalAveragePool", ((2, 3, 0),)))


def test_the_mean_of_a_channel_of_known_size_takes_a_product() -> None:
    row = Row("GlobalAveragePool", ((2, 3, 4),))
    assert set(counts(row)) == {"Mul", "Expand"}
    assert counts(row, opened=["x0"])["ReduceProd"] == 1
