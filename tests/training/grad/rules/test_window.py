from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import Any

import onnx_ir as ir
import pytest
from gradient_nodes import check_opened, nodes
from gradient_table import Row, check_difference, check_float32, second_views
from torch_table import TorchRow, check_torch
from window_grid import AUTO_PADDED, CONVOLUTIONS, POOLS

from amp_rewrite.training.grad import Builder, GradientError
from amp_rewrite.training.grad.rules.window import (
    Lengths,
    Window,
    ranked,
    read_window,
    spatial,
    static,
    tail,
)

ROWS = [case.row for case in (*CONVOLUTIONS, *POOLS)]


@pytest.mark.share(7, each="row.op")
@pytest.mark.parametrize("row", [*ROWS, *AUTO_PADDED], ids=str)
def test_every_window_has_the_gradient_of_the_difference_quotient(row: Row) -> None:
    check_difference(row, static=True)


@pytest.mark.parametrize("row", second_views(ROWS), ids=str)
def test_the_gradient_of_a_window_needs_no_static_lengths(row: Row) -> None:
    check_difference(row, static=False)


@pytest.mark.parametrize("row", second_views(ROWS), ids=str)
def test_the_gradient_of_a_window_runs_in_float32(row: Row) -> None:
    check_float32(row)


@pytest.mark.share(3)
@pytest.mark.parametrize("case", [*CONVOLUTIONS, *POOLS], ids=str)
def test_every_window_has_the_gradient_that_it_has_in_pytorch(case: TorchRow) -> None:
    check_torch(case)


@pytest.mark.parametrize(
    ("kernel", "strides", "dilations", "extent", "overlaps"),
    [
        ((2,), (2,), (1,), (2,), False),
        ((3,), (2,), (1,), (3,), True),
        ((1,), (2,), (3,), (1,), False),
        ((2, 3), (3, 3), (2, 1), (3, 3), False),
        ((2, 2), (2, 1), (1, 1), (2, 2), True),
        ((2, 2), (2, 2), (1, 2), (2, 3), True),
        (None, (), (), (), False),
    ],
)
def test_a_window_spans_what_its_taps_reach(
    kernel: Lengths | None, strides: Lengths, dilations: Lengths, extent: Lengths, overlaps: bool
) -> None:
    window = Window(kernel, strides, dilations, (1,) * len(strides), (2,) * len(strides))
    assert window.extent == extent
    assert window.overlaps is overlaps
    assert window.pads == [1] * len(strides) + [2] * len(strides)
    assert not window.ceil
    assert len({window, Window(kernel, strides, dilations, window.begin, window.end)}) == 1


def value(*lengths: int | None) -> ir.Value:
    return ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(lengths))


def read(lengths: tuple[int | None, ...], given: Lengths | None = None, **attributes: Any) -> Any:
    """Return kernel, strides, dilations, begin, end and ceil as they are read from a node."""
    node = ir.Node("", "Conv", [], ir.convenience.convert_attributes(attributes), name="node")
    window = read_window(node, builder(), value(1, 1, *lengths), given)
    return tuple(getattr(window, field.name) for field in fields(window))


def builder() -> Builder:
    graph = ir.Graph([], [], nodes=[], opset_imports={"": 18}, name="g")
    return Builder(ir.Model(graph, ir_version=8))


UPPER, LOWER = {"auto_pad": "SAME_UPPER"}, {"auto_pad": "SAME_LOWER"}


@pytest.mark.parametrize(
    ("lengths", "given", "attributes", "expected"),
    [
        ((5, 6), None, {}, (None, (1, 1), (1, 1), (0, 0), (0, 0), False)),
        ((5,), (3,), {}, ((3,), (1,), (1,), (0,), (0,), False)),
        ((5,), (3,), {"kernel_shape": [2]}, ((2,), (1,), (1,), (0,), (0,), False)),
        (
            (5, 6),
            (3, 2),
            {"strides": [2, 3], "dilations": [3, 4], "pads": [1, 2, 3, 4], "ceil_mode": 1},
            ((3, 2), (2, 3), (3, 4), (1, 2), (3, 4), True),
        ),
        ((5,), (3,), {"auto_pad": "NOTSET", "pads": [1, 2]}, ((3,), (1,), (1,), (1,), (2,), False)),
        (
            (5,),
            (3,),
            {"auto_pad": "VALID", "pads": [1, 2], "strides": [2], "ceil_mode": 1},
            ((3,), (2,), (1,), (0,), (0,), True),
        ),
        ((None,), None, {"auto_pad": "VALID"}, (None, (1,), (1,), (0,), (0,), False)),
        # the output has as many positions as strides fit into the input, rounded up
        ((5,), (2,), UPPER, ((2,), (1,), (1,), (0,), (1,), False)),
        ((5,), (2,), LOWER, ((2,), (1,), (1,), (1,), (0,), False)),
        ((None,), (4,), UPPER, ((4,), (1,), (1,), (1,), (2,), False)),
        ((5,), (3,), {**UPPER, "strides": [2]}, ((3,), (2,), (1,), (1,), (1,), False)),
        ((6,), (3,), {**UPPER, "strides": [2]}, ((3,), (2,), (1,), (0,), (1,), False)),
        ((6,), (3,), {**LOWER, "strides": [2]}, ((3,), (2,), (1,), (1,), (0,), False)),
        ((6,), (1,), {**UPPER, "strides": [2]}, ((1,), (2,), (1,), (0,), (0,), False)),
        ((9,), (4,), {**UPPER, "strides": [4]}, ((4,), (4,), (1,), (1,), (2,), False)),
        (
            (7, None),
            (2, 3),
            {**LOWER, "strides": [3, 1], "dilations": [3, 2], "ceil_mode": 1},
            ((2, 3), (3, 1), (3, 2), (2, 2), (1, 2), True),
        ),
    ],
)
def test_a_window_is_read_from_a_node(
    lengths: tuple[int | None, ...],
    given: Lengths | None,
    attributes: dict[str, Any],
    expected: Any,
) -> None:
    assert read(lengths, given, **attributes) == expected


@pytest.mark.parametrize(
    ("lengths", "given", "strides", "what"),
    [
        ((5,), None, [1], "the kernel's lengths"),
        ((None,), (3,), [2], "spatial lengths"),
        ((5, None), (3, 1), [1, 2], "spatial lengths"),
    ],
)
def test_what_auto_pad_needs_is_named(
    lengths: tuple[int | None, ...], given: Lengths | None, strides: list[int], what: str
) -> None:
    message = rf"'node'.*auto_pad needs {what}.*found auto_pad SAME_LOWER"
    with pytest.raises(GradientError, match=message):
        read(lengths, given, strides=strides, **LOWER)


def test_lengths_are_static_if_all_are() -> None:
    assert static(None) is None
    assert static(()) == ()
    assert static((2, 3)) == (2, 3)
    assert static((None, 3)) is None
    assert static([2, None]) is None


def test_the_spatial_lengths_stand_behind_the_first_two() -> None:
    b = builder()
    assert spatial(b, value(1, 2, 3, None)) == (3, None)
    assert spatial(b, value(1, 2)) == ()
    known = tail(b, value(None, None, 3, 4))
    assert known.const_value is not None
    assert known.const_value.numpy().tolist() == [3, 4]
    assert b.added == []


@pytest.mark.parametrize("lengths", [(1, 2, 3, None), None])
def test_spatial_lengths_are_computed_where_they_are_not_known(
    lengths: tuple[int | None, ...] | None,
) -> None:
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT))
    x = x if lengths is None else value(*lengths)
    b = builder()
    node = tail(b, x).producer()
    assert node is not None
    assert node.op_type == "Slice"
    start, end = (b.ints(bound) for bound in node.inputs[1:3])
    assert start == [2]
    assert end is not None
    assert end[0] >= 4


def test_a_gradient_has_the_rank_of_what_it_is_like() -> None:
    bare = ir.Value(name="g", type=ir.TensorType(ir.DataType.FLOAT))
    like = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT))
    assert ranked(bare, like).shape is None
    assert ranked(bare, value(2, 3)) is bare
    assert bare.shape is not None
    assert [d.value for d in bare.shape if isinstance(d, ir.SymbolicDim)] == [None, None]
    shaped = ranked(value(2, 3), value(4, 5)).shape
    assert shaped is not None
    assert list(shaped) == [2, 3]


def conv(x: tuple[int, ...], w: tuple[int, ...], **attributes: Any) -> Row:
    return Row("Conv", (x, w), attributes)


COMPUTED = ["Shape", "Slice", "Slice", "Slice", "Shape", "Slice", "Sub", "Concat", "Pad"]


@pytest.mark.parametrize(
    ("row", "opened", "added", "attributes"),
    [
        (conv((1, 1, 6), (2, 1, 3)), [], [], {"pads": [0, 0]}),
        (conv((1, 1, 6), (2, 1, 3), pads=[1, 2]), [], [], {"pads": [1, 2]}),
        (conv((1, 1, 7), (2, 1, 3), strides=[2]), [], [], {"pads": [0, 0]}),
        # what no window reaches
        (
            conv((1, 1, 6), (2, 1, 3), strides=[2]),
            [],
            [],
            {"pads": [0, 0], "output_padding": [1]},
        ),
        (
            conv((1, 1, 7, 8), (2, 1, 3, 2), strides=[2, 3], pads=[0, 1, 0, 0]),
            [],
            [],
            {"pads": [0, 1, 0, 0], "output_padding": [0, 1]},
        ),
        # padding behind that no window reaches
        (conv((1, 1, 5), (2, 1, 2), strides=[2], pads=[0, 2]), [], [], {"pads": [0, 1]}),
        (conv((1, 1, 6), (2, 1, 3), pads=[1, 2]), ["x0"], [], {"pads": [1, 2]}),
        (conv((1, 1, 6), (2, 1, 3), pads=[1, 2]), ["x0", "x1"], [], {"pads": [1, 2]}),
        (conv((1, 1, 6), (2, 1, 3), strides=[2], pads=[1, 1]), ["x0"], COMPUTED, {"pads": [1, 0]}),
    ],
    ids=str,
)
def test_a_convolution_back_takes_more_nodes_only_where_lengths_are_not_known(
    row: Row, opened: list[str], added: list[str], attributes: dict[str, list[int]]
) -> None:
    made = nodes(row, "x0", opened=opened)
    [back] = [node for node in made if node.op_type == "ConvTranspose"]
    assert Counter(n.op_type for n in made if n is not back) == Counter(added)
    for name in ("pads", "output_padding"):
        found = back.attributes.get_ints(name, ())
        assert list(found) == attributes.get(name, [])


NUMBERS = [
    conv((2, 2, 6), (3, 2, 3), strides=[2]),
    conv((2, 2, 7), (3, 2, 3), strides=[2]),
    conv((2, 2, 5), (3, 2, 2), strides=[2], pads=[0, 2]),
    conv((2, 2, 6), (3, 2, 2), strides=[4], pads=[1, 1]),
    conv((2, 2, 7, 6), (3, 2, 3, 2), strides=[2, 3], pads=[0, 1, 0, 0]),
    conv((2, 2, 7, 8), (3, 2, 2, 2), strides=[2, 1], dilations=[2, 3], pads=[2, 0, 1, 1]),
]


@pytest.mark.parametrize("row", NUMBERS, ids=str)
def test_elements_that_no_window_reaches_get_zero(row: Row) -> None:
    check_difference(row, static=True)
    check_opened(row, "x0")
