from __future__ import annotations

import numpy as np
import pytest
from gradient_table import NEWEST, Constant, Row, positive, spread
from torch_table import TorchRow, check_torch

INDICES = np.array([[0, 1, 0], [0, 2, 3]])


def scatter(reduction: str):
    def run(t, x, u):
        return x.scatter_reduce(0, t.tensor(INDICES), u, reduction)

    return run


REDUCTIONS = [
    TorchRow(Row("ReduceSum", ((2, 3, 4), Constant([1]))), lambda t, x: x.sum(1, keepdim=True)),
    TorchRow(Row("ReduceSum", ((2, 3),), {"keepdims": 0}), lambda t, x: x.sum()),
    TorchRow(
        Row("ReduceMean", ((2, 3, 4), Constant([0, 2])), {"keepdims": 0}),
        lambda t, x: x.mean((0, 2)),
    ),
    TorchRow(
        Row("ReduceMax", ((2, 3, 4), Constant([1, 2])), {"keepdims": 0}, generate=spread),
        lambda t, x: x.amax((1, 2)),
    ),
    TorchRow(
        Row("ReduceMin", ((2, 3, 4), Constant([-1])), generate=spread),
        lambda t, x: x.amin(-1, keepdim=True),
    ),
    TorchRow(
        Row("ReduceMax", ((3, 4), Constant([1])), generate=lambda r, s: np.ones(s), note="ties"),
        lambda t, x: x.amax(1, keepdim=True),
    ),
    TorchRow(Row("ReduceProd", ((2, 3, 4), Constant([1]))), lambda t, x: x.prod(1, keepdim=True)),
    TorchRow(
        Row("ReduceProd", ((2, 3), Constant([1])), generate=lambda r, s: [[0, 2, 3], [1, 0, 0]]),
        lambda t, x: x.prod(1, keepdim=True),
    ),
    TorchRow(Row("ReduceL1", ((2, 3), Constant([1]))), lambda t, x: x.norm(1, 1, keepdim=True)),
    TorchRow(Row("ReduceL2", ((2, 3), Constant([1]))), lambda t, x: x.norm(2, 1, keepdim=True)),
    TorchRow(
        Row("ReduceL2", ((2, 3), Constant([1])), generate=lambda r, s: np.zeros(s), note="zero"),
        lambda t, x: x.norm(2, 1, keepdim=True),
    ),
    TorchRow(
        Row("ReduceLogSum", ((2, 3),), {"keepdims": 0}, generate=positive),
        lambda t, x: x.sum().log(),
    ),
    TorchRow(
        Row("ReduceLogSumExp", ((2, 3), Constant([1]))),
        lambda t, x: x.logsumexp(1, keepdim=True),
    ),
    TorchRow(
        Row("ReduceSumSquare", ((2, 3), Constant([0])), {"keepdims": 0}),
        lambda t, x: (x * x).sum(0),
    ),
    TorchRow(Row("CumSum", ((3, 4), Constant(1))), lambda t, x: x.cumsum(1)),
    TorchRow(
        Row("CumSum", ((3, 4), Constant(0)), {"reverse": 1}),
        lambda t, x: x.flip(0).cumsum(0).flip(0),
    ),
]

SHAPES = [
    TorchRow(Row("Reshape", ((2, 3, 4), Constant([4, -1]))), lambda t, x: x.reshape(4, 6)),
    TorchRow(Row("Flatten", ((2, 3, 4),)), lambda t, x: x.flatten(1)),
    TorchRow(Row("Transpose", ((2, 3, 4),), {"perm": [1, 2, 0]}), lambda t, x: x.permute(1, 2, 0)),
    TorchRow(Row("Expand", ((3, 1), Constant([2, 3, 4]))), lambda t, x: x.expand(2, 3, 4)),
    TorchRow(Row("Tile", ((2, 3), Constant([2, 3]))), lambda t, x: x.tile(2, 3)),
    TorchRow(Row("Concat", ((2, 3), (2, 1)), {"axis": 1}), lambda t, x, y: t.cat([x, y], 1)),
    TorchRow(
        Row("Split", ((2, 6), Constant([1, 2, 3])), {"axis": 1}, outputs=3),
        lambda t, x: x.split([1, 2, 3], 1),
    ),
    TorchRow(
        Row("DepthToSpace", ((2, 8, 3, 2),), {"blocksize": 2, "mode": "CRD"}),
        lambda t, x: t.nn.functional.pixel_shuffle(x, 2),
    ),
    TorchRow(
        Row("DepthToSpace", ((2, 8, 3, 2),), {"blocksize": 2}),
        lambda t, x: x.view(2, 2, 2, 2, 3, 2).permute(0, 3, 4, 1, 5, 2).reshape(2, 2, 6, 4),
    ),
    TorchRow(
        Row("SpaceToDepth", ((2, 3, 4, 6),), {"blocksize": 2}),
        lambda t, x: x.view(2, 3, 2, 2, 3, 2).permute(0, 3, 5, 1, 2, 4).reshape(2, 12, 2, 3),
    ),
    TorchRow(Row("Squeeze", ((2, 1, 3, 1), Constant([1, -1]))), lambda t, x: x.squeeze((1, 3))),
    TorchRow(Row("Unsqueeze", ((2, 3), Constant([1]))), lambda t, x: x.unsqueeze(1)),
    TorchRow(Row("Identity", ((2, 3),)), lambda t, x: x),
    TorchRow(Row("Cast", ((2, 3),), {"to": 11}, note="to double"), lambda t, x: x.to(t.float64)),
    TorchRow(
        Row("Dropout", ((2, 3), Constant(0.3))),
        lambda t, x: t.nn.functional.dropout(x, 0.3, training=False),
    ),
    TorchRow(Row("Trilu", ((3, 4), Constant(1))), lambda t, x: x.triu(1)),
    TorchRow(Row("Trilu", ((3, 4),), {"upper": 0}), lambda t, x: x.tril()),
]

INDEXING = [
    TorchRow(
        Row(
            "Slice",
            ((5, 6), Constant([1, 0]), Constant([4, 6]), Constant([0, 1]), Constant([1, 4])),
        ),
        lambda t, x: x[1:4, 0:6:4],
    ),
    TorchRow(
        Row("Slice", ((5, 6), Constant([-1]), Constant([-7]), Constant([1]), Constant([-1]))),
        lambda t, x: x.flip(1),
    ),
    TorchRow(
        Row("Pad", ((2, 3), Constant([1, 0, 2, 3]))),
        lambda t, x: t.nn.functional.pad(x, (0, 3, 1, 2)),
    ),
    TorchRow(
        Row("Pad", ((1, 2, 4, 5), Constant([0, 0, 1, 2, 0, 0, 2, 3])), {"mode": "reflect"}),
        lambda t, x: t.nn.functional.pad(x, (2, 3, 1, 2), mode="reflect"),
    ),
    TorchRow(
        Row("Pad", ((1, 2, 4, 5), Constant([0, 0, 1, 2, 0, 0, 2, 3])), {"mode": "edge"}),
        lambda t, x: t.nn.functional.pad(x, (2, 3, 1, 2), mode="replicate"),
    ),
    TorchRow(
        Row("Pad", ((1, 2, 4, 5), Constant([0, 0, 1, 2, 0, 0, 2, 3])), {"mode": "wrap"}, opset=19),
        lambda t, x: t.nn.functional.pad(x, (2, 3, 1, 2), mode="circular"),
    ),
    TorchRow(
        Row("Gather", ((5, 3), Constant([0, 2, 2, -1]))), lambda t, x: x[t.tensor([0, 2, 2, -1])]
    ),
    TorchRow(
        Row("Gather", ((3, 5, 2), Constant([0, 2, 2])), {"axis": 1}),
        lambda t, x: x.index_select(1, t.tensor([0, 2, 2])),
    ),
    TorchRow(
        Row("Gather", ((5, 3), Constant([[0, 2], [2, 1]])), opset=13),
        lambda t, x: t.nn.functional.embedding(t.tensor([[0, 2], [2, 1]]), x),
    ),
    TorchRow(
        Row("GatherElements", ((4, 3), Constant(INDICES))),
        lambda t, x: x.gather(0, t.tensor(INDICES)),
    ),
    TorchRow(
        Row("GatherND", ((3, 4), Constant([[0, 1], [2, 3], [0, 1]]))),
        lambda t, x: x[t.tensor([0, 2, 0]), t.tensor([1, 3, 1])],
    ),
    TorchRow(
        Row("ScatterElements", ((4, 3), Constant([[0, 2, 3]]), (1, 3))),
        lambda t, x, u: x.scatter(0, t.tensor([[0, 2, 3]]), u),
    ),
    TorchRow(
        Row("ScatterElements", ((4, 3), Constant(INDICES), (2, 3)), {"reduction": "add"}),
        scatter("sum"),
    ),
    TorchRow(
        Row("ScatterElements", ((4, 3), Constant(INDICES), (2, 3)), {"reduction": "mul"}),
        scatter("prod"),
    ),
    TorchRow(
        Row("ScatterElements", ((4, 3), Constant(INDICES), (2, 3)), {"reduction": "max"}),
        scatter("amax"),
    ),
    TorchRow(
        Row(
            "ScatterElements",
            ((4, 3), Constant(INDICES), (2, 3)),
            {"reduction": "min"},
            opset=NEWEST,
            generate=lambda r, s: np.ones(s),
            note="ties",
        ),
        scatter("amin"),
    ),
    TorchRow(
        Row("ScatterND", ((4, 3), Constant([[1], [3], [1]]), (3, 3)), {"reduction": "add"}),
        lambda t, x, u: x.index_add(0, t.tensor([1, 3, 1]), u),
    ),
    TorchRow(
        Row("TopK", ((3, 4), Constant([2])), outputs=2, generate=spread),
        lambda t, x: x.topk(2).values,
    ),
]

ROWS = REDUCTIONS + SHAPES + INDEXING


@pytest.mark.parametrize("case", ROWS, ids=str)
def test_the_gradient_of_a_reduction_or_copy_equals_that_of_torch(case: TorchRow):
    check_torch(case)
