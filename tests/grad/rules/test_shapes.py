from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gradient_nodes import (
    check_vjp,
    differentiated,
    vjp,
)
from gradient_table import (
    NEWEST,
    Constant,
    Fed,
    Row,
    over,
    spread,
)
from loop_models import check

from amp_rewrite.grad import GradientError

BOTH = (16, NEWEST)
MASK = [[True, False, True], [False, True, True]]

ROWS = [
    *over(BOTH, "Identity", ((2, 3),)),
    *over(BOTH, "Reshape", ((2, 3, 4), Constant([4, 6]))),
    Row("Reshape", ((2, 3, 4), Constant([0, -1])), opset=16),
    Row("Reshape", ((2, 3, 4), Constant([-1, 2, 0])), opset=21),
    Row("Reshape", ((2, 3, 4), Fed([4, 0, -1])), opset=17, note="fed shape"),
    Row("Reshape", ((2, 3), Constant([6])), {"allowzero": 1}, opset=18),
    Row("Reshape", ((1,), Constant([]))),
    *over(BOTH, "Transpose", ((2, 3, 4),), {"perm": [1, 2, 0]}),
    Row("Transpose", ((2, 3, 4),)),
    *over(BOTH, "Squeeze", ((2, 1, 3, 1), Constant([1, -1]))),
    Row("Squeeze", ((1, 3, 1),)),
    Row("Squeeze", ((2, 1, 3), Fed([1]))),
    *over(BOTH, "Unsqueeze", ((2, 3), Constant([0, -1]))),
    Row("Unsqueeze", ((2, 3), Fed([1]))),
    *over(BOTH, "Flatten", ((2, 3, 4),)),
    Row("Flatten", ((2, 3, 4),), {"axis": 2}),
    Row("Flatten", ((2, 3, 4),), {"axis": -1}),
    Row("Flatten", ((2, 3),), {"axis": 0}),
    *over(BOTH, "Expand", ((3, 1), Constant([2, 3, 4]))),
    Row("Expand", ((3, 1), Fed([2, 1, 4]))),
    Row("Expand", ((2, 3), Constant([1, 1]))),
    *over(BOTH, "Tile", ((2, 3), Constant([2, 3]))),
    Row("Tile", ((2, 3), Constant([1, 2]))),
    Row("Tile", ((2, 1, 3), Fed([3, 2, 1]))),
    *over(BOTH, "Concat", ((2, 3), (2, 1), (2, 2)), {"axis": 1}),
    Row("Concat", ((2, 3), (1, 3)), {"axis": -2}),
    Row("Concat", ((2, 3),), {"axis": 0}),
    *over(BOTH, "Split", ((2, 6), Constant([1, 2, 3])), {"axis": 1}, outputs=3),
    Row("Split", ((4, 3),), opset=16, outputs=2),
    Row("Split", ((5, 3),), {"num_outputs": 2}, opset=18, outputs=2),
    Row("Split", ((2, 6), Fed([4, 2])), {"axis": -1}, outputs=2),
    *over(BOTH, "Cast", ((2, 3),), {"to": 11}, note="to double"),
    *over((16, NEWEST), "CastLike", ((2, 3), Constant(np.zeros(1, np.float64)))),
    *over(BOTH, "DepthToSpace", ((2, 8, 3, 2),), {"blocksize": 2}),
    *over(BOTH, "DepthToSpace", ((2, 8, 3, 2),), {"blocksize": 2, "mode": "CRD"}),
    Row("DepthToSpace", ((1, 18, 2, 1),), {"blocksize": 3, "mode": "CRD"}),
    *over(BOTH, "SpaceToDepth", ((2, 3, 4, 6),), {"blocksize": 2}),
    *over((16, NEWEST), "Trilu", ((3, 4),)),
    Row("Trilu", ((2, 3, 3), Constant(-1)), {"upper": 0}),
    Row("Trilu", ((3, 4), Fed(1))),
    *over(BOTH, "ReverseSequence", ((4, 3), Constant([1, 4, 2]))),
    Row("ReverseSequence", ((3, 4), Constant([1, 4, 2])), {"batch_axis": 0, "time_axis": 1}),
    *over(BOTH, "Dropout", ((2, 3),)),
    Row("Dropout", ((2, 3), Constant(0.3))),
    Row("Dropout", ((2, 3), Constant(0.3), Fed(False))),
    Row("Dropout", ((2, 3), Constant(0.0), Constant(True))),
]


def with_zeros(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of which some are 0."""
    x = spread(rng, shape)
    x.reshape(-1)[::3] = 0
    return x


INDEXING = [
    *(
        Row(
            op,
            ((4, 3), Fed(indices), shape),
            {"reduction": "mul"},
            opset=opset,
            generate=with_zeros,
            note="zeros",
        )
        for opset in (16, NEWEST)
        for op, indices, shape in (
            ("ScatterElements", [[0, 1, 0], [0, 1, 3], [0, 1, 1]], (3, 3)),
            ("ScatterND", [[1], [3], [1], [1]], (4, 3)),
        )
    ),
    *over(BOTH, "Slice", ((5, 6), Constant([1, 2]), Constant([4, 5]))),
    *over(BOTH, "Slice", ((5, 6), Constant([1]), Constant([-1]), Constant([1]))),
    Row("Slice", ((5, 6), Constant([-3]), Constant([100]), Constant([-1]))),
    Row("Slice", ((5, 6), Constant([0]), Constant([5]), Constant([1]), Constant([2])), opset=16),
    Row("Slice", ((5, 6), Constant([-1]), Constant([-7]), Constant([1]), Constant([-1]))),
    Row(
        "Slice",
        ((5, 6), Constant([4, 5]), Constant([0, -100]), Constant([0, 1]), Constant([-2, -3])),
    ),
    Row("Slice", ((5, 6), Constant([1, 0]), Constant([4, 6]), Constant([0, 1]), Constant([1, 4]))),
    Row("Slice", ((5, 6), Fed([1]), Fed([-1]), Constant([1])), opset=16),
    Row("Slice", ((5, 6), Fed([-2, -4]), Fed([50, 5]), Fed([1, 0]))),
    Row("Slice", ((5, 6), Constant([1]), Constant([4]), Fed([1]))),
    Row("Slice", ((5, 6), Fed([1]), Fed([4]), Constant([0]), Fed([2])), opset=NEWEST),
    Row("Slice", ((5, 6), Fed([4, 0]), Fed([0, 6]), Constant([1, 0]), Fed([-1, 3]))),
    Row("Slice", ((5, 6), Fed([1, 2]), Fed([3, 4]))),
    Row("Slice", ((5, 6), Fed([-1, 1]), Fed([-9, 6]), Fed([1, 0]), Fed([-2, 3]))),
    Row("Slice", ((5, 6), Fed([0]), Fed([9]), Fed([-1]), Fed([2])), opset=16),
    Row("Slice", ((5, 6), Constant(np.array([1], np.int32)), Constant(np.array([3], np.int32)))),
    *over(BOTH, "Pad", ((2, 3), Constant([1, 0, 2, 3]))),
    *over(BOTH, "Pad", ((2, 3), Constant([0, 1, 0, 2]), ()), {"mode": "constant"}),
    Row("Pad", ((4, 5), Constant([-1, 2, 1, -2]), ())),
    Row("Pad", ((2, 3), Fed([1, 0, 2, 3]))),
    Row("Pad", ((2, 3, 4), Constant([1, 2]), None, Constant([-1]))),
    Row("Pad", ((2, 3, 4), Fed([1, 2, 0, 1]), (), Fed([2, 0]))),
    *over(BOTH, "Pad", ((3, 4), Constant([1, 2, 2, 3])), {"mode": "reflect"}),
    *over(BOTH, "Pad", ((3, 4), Constant([1, 2, 2, 3])), {"mode": "edge"}),
    Row("Pad", ((3, 4), Constant([0, 2, 0, 3])), {"mode": "reflect"}),
    Row("Pad", ((3, 4), Fed([1, 2, 2, 3])), {"mode": "reflect"}),
    Row("Pad", ((3, 4), Fed([1, 2]), None, Constant([1])), {"mode": "edge"}),
    *over((19, NEWEST), "Pad", ((3, 4), Constant([1, 2, 2, 3])), {"mode": "wrap"}),
    *(
        Row("Pad", ((3, 4), pads([-1, -1, 0, -2])), {"mode": mode})
        for mode in ("constant", "reflect", "edge")
        for pads in (Constant, Fed)
    ),
    *over(BOTH, "Pad", ((3, 4), Constant([-1, 2, 1, -2])), {"mode": "edge"}),
    *over((19, NEWEST), "Pad", ((3, 4), Constant([-1, 2, 1, -2])), {"mode": "wrap"}),
    *over(BOTH, "Gather", ((5, 3), Constant([0, 2, 2, -1]))),
    *over(BOTH, "Gather", ((5, 3), Fed([[0, 2], [2, -1]])), note="fed"),
    *over(BOTH, "Gather", ((3, 5, 2), Constant([[0, 2], [2, -1]])), {"axis": 1}),
    Row("Gather", ((3, 5), Fed([4, 4, 1])), {"axis": -1}),
    Row("Gather", ((3, 5), Constant(1)), {"axis": 1}),
    Row("Gather", ((3, 5), Fed(-2)), {"axis": 0}),
    Row("Gather", ((5,), Constant(np.array([1, 3, 1], np.int32)))),
    *over(BOTH, "GatherElements", ((3, 4), Constant([[0, 1, 1], [3, -1, 0]])), {"axis": 1}),
    Row("GatherElements", ((3, 4), Fed([[0, 1, 2, 2], [0, 0, -1, 2]]))),
    *over(BOTH, "GatherND", ((3, 4, 2), Constant([[0, 1], [2, -1], [0, 1]]))),
    Row("GatherND", ((3, 4, 2), Fed([[[0], [2]], [[2], [1]]])), opset=NEWEST, note="rows"),
    Row(
        "GatherND",
        ((3, 4, 2), Fed([[[0], [2]], [[2], [1]]])),
        opset=16,
        lengths="no scatter adds before opset 16; the product instead takes one index per row",
    ),
    *over(BOTH, "GatherND", ((2, 4, 3), Constant([[[1], [3]], [[0], [0]]])), {"batch_dims": 1}),
    Row("GatherND", ((2, 2, 3), Fed([[[1], [2]], [[0], [0]]])), {"batch_dims": 2}),
    *over(BOTH, "ScatterElements", ((3, 4), Constant([[0, 2], [3, -3]]), (2, 2)), {"axis": 1}),
    *over(
        (16, NEWEST),
        "ScatterElements",
        ((4, 3), Fed([[0, 1, 0], [0, 2, 3]]), (2, 3)),
        {"reduction": "add"},
    ),
    *over(
        (16, NEWEST),
        "ScatterElements",
        ((4, 3), Fed([[0, 1, 0], [0, 2, 3]]), (2, 3)),
        {"reduction": "mul"},
    ),
    *over(
        (18, NEWEST),
        "ScatterElements",
        ((4, 3), Fed([[0, 1, 0], [0, 2, 3]]), (2, 3)),
        {"reduction": "max"},
    ),
    *over(
        (18, NEWEST),
        "ScatterElements",
        ((4, 3), Fed([[0, 1, 0], [0, 2, 3]]), (2, 3)),
        {"reduction": "min"},
    ),
    *over(BOTH, "ScatterND", ((4, 3), Constant([[1], [3]]), (2, 3))),
    *over((16, NEWEST), "ScatterND", ((4, 3), Fed([[1], [3], [1]]), (3, 3)), {"reduction": "add"}),
    *over((16, NEWEST), "ScatterND", ((4, 3), Fed([[1], [3], [1]]), (3, 3)), {"reduction": "mul"}),
    *over(
        (18, NEWEST),
        "ScatterND",
        ((4, 3), Fed([[1, 0], [3, 2], [1, 0]]), (3,)),
        {"reduction": "max"},
    ),
    Row("ScatterND", ((4, 3), Fed([[1, 0], [3, 2], [1, 0]]), (3,)), {"reduction": "min"}),
    *over(BOTH, "Compress", ((3, 4), Constant([False, True, True])), {"axis": 0}),
    Row("Compress", ((3, 4), Fed([True, False, False, True])), {"axis": -1}),
    Row("Compress", ((3, 4), Fed([True, False, False, True, True]))),
    Row("Unique", ((2, 4),), opset=16, generate=spread, differentiable=1),
    Row("Unique", ((3, 2),), {"axis": 0, "sorted": 0}, generate=spread, differentiable=1),
    Row("Unique", ((2, 3),), {"axis": -1}, generate=spread, outputs=4, differentiable=1),
    *over(BOTH, "TopK", ((3, 4), Constant([2])), outputs=2, generate=spread),
    Row("TopK", ((3, 4), Fed([2])), {"axis": 0, "largest": 0}, outputs=2, generate=spread),
]

ROWS += INDEXING


def test_pieces_that_nothing_reads_count_as_zeros() -> None:
    row = Row("Split", ((2, 4), Constant([1, 3])), {"axis": 1}, outputs=2, differentiable=1)
    model = differentiated(row)
    assert [n.op_type for n in model.graph if n.op_type == "ConstantOfShape"]
    check_vjp(row, [[[5], [7]]], [[[5, 0, 0, 0], [7, 0, 0, 0]]])


@pytest.mark.parametrize("training", [Constant(True), Fed(True)], ids=["known", "fed"])
@pytest.mark.parametrize(
    ("ratio", "scale"),
    [
        (None, 2.0),
        (Constant(0.75), 4.0),
        (Fed(np.array(0.75)), 4.0),
        (Constant(0.0), 1.0),
    ],
    ids=str,
)
def test_dropout_multiplies_what_it_keeps(ratio: Any, scale: float, training: Any) -> None:
    row = Row("Dropout", ((40, 50), ratio, training), {"seed": 3})
    u = np.ones((40, 50))
    found = vjp(row, u)["x0"]
    assert set(np.unique(found).tolist()) <= {0.0, scale}
    assert found.max() == scale
    assert abs((found > 0).mean() - 1 / scale) < 0.05


def test_dropout_that_is_off_passes_everything() -> None:
    for training in (Constant(False), Fed(False), None):
        row = Row("Dropout", ((2, 3), Constant(0.75), training))
        check_vjp(row, [np.full((2, 3), 3.0)], [np.full((2, 3), 3.0)])


def test_a_sequence_of_tensors_is_refused_by_name() -> None:
    text = """(float[2, 3] x) => (float[2, 3] y) <int64 i = {0}> {
        s = SequenceConstruct(x, x)  y = SequenceAt(s, i) }"""
    with pytest.raises(GradientError, match=r"sequences of tensors have no gradient.*Split"):
        check(text, {"x": np.ones((2, 3))})
