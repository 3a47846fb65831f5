from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gradient_table import Constant, Fed, Row, positive, spread
from torch_table import TorchRow, check_torch

WEIGHT = [0.5, 1.0, 2.0]


def _conv(x: tuple[int, ...], w: tuple[int, ...], **options: Any) -> TorchRow:
    rank = len(x) - 2
    attributes = {
        "strides": [options.get("stride", 1)] * rank,
        "pads": [options.get("padding", 0)] * 2 * rank,
        "dilations": [options.get("dilation", 1)] * rank,
        "group": options.get("groups", 1),
    }
    row = Row("Conv", (x, w, (w[0],)), attributes)
    name = f"conv{rank}d"
    return TorchRow(row, lambda t, *v: getattr(t.nn.functional, name)(*v, **options))


def _transpose(x: tuple[int, ...], w: tuple[int, ...], **options: Any) -> TorchRow:
    rank = len(x) - 2
    attributes = {
        "strides": [options.get("stride", 1)] * rank,
        "pads": [options.get("padding", 0)] * 2 * rank,
        "dilations": [options.get("dilation", 1)] * rank,
        "output_padding": [options.get("output_padding", 0)] * rank,
        "group": options.get("groups", 1),
    }
    row = Row("ConvTranspose", (x, w, (w[1] * attributes["group"],)), attributes)
    name = f"conv_transpose{rank}d"
    return TorchRow(row, lambda t, *v: getattr(t.nn.functional, name)(*v, **options))


def _pool(op: str, name: str, x: tuple[int, ...], kernel: int, **options: Any) -> TorchRow:
    rank = len(x) - 2
    attributes: dict[str, Any] = {
        "kernel_shape": [kernel] * rank,
        "strides": [options.get("stride", kernel)] * rank,
        "pads": [options.get("padding", 0)] * 2 * rank,
        "ceil_mode": int(options.get("ceil_mode", False)),
    }
    if "dilation" in options:
        attributes["dilations"] = [options["dilation"]] * rank
    if op == "AveragePool":
        attributes["count_include_pad"] = int(options.setdefault("count_include_pad", False))
    row = Row(op, (x,), attributes, opset=19, generate=spread)
    function = f"{name}{rank}d"
    return TorchRow(row, lambda t, v: getattr(t.nn.functional, function)(v, kernel, **options))


def _loss(shape: tuple[int, ...], labels: Any, *weight: Any, **options: Any) -> TorchRow:
    attributes = {k: v for k, v in options.items() if k != "weighted"}
    attributes.setdefault("reduction", "mean")
    row = Row("SoftmaxCrossEntropyLoss", (shape, Fed(labels), *weight), attributes)

    def function(t: Any, scores: Any) -> Any:
        classes = t.tensor(WEIGHT, dtype=t.float64) if weight else None
        return t.nn.functional.cross_entropy(scores, t.tensor(labels), weight=classes, **attributes)

    return TorchRow(row, function)


def _nll(shape: tuple[int, ...], labels: Any, **attributes: Any) -> TorchRow:
    row = Row("NegativeLogLikelihoodLoss", (shape, Fed(labels)), attributes)
    return TorchRow(
        row,
        lambda t, x: t.nn.functional.nll_loss(x, t.tensor(labels), **attributes),
    )


def _resize(size: tuple[int, int], mode: str, **options: Any) -> TorchRow:
    corners = options.get("align_corners")
    where = "align_corners" if corners else "pytorch_half_pixel"
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": where}
    if mode == "nearest":
        attributes |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    row = Row("Resize", ((2, 2, 3, 4), None, None, Constant([2, 2, *size])), attributes)
    name = {"linear": "bilinear"}.get(mode, mode)
    return TorchRow(
        row, lambda t, x: t.nn.functional.interpolate(x, size=size, mode=name, **options)
    )


def _einsum(equation: str, *shapes: tuple[int, ...]) -> TorchRow:
    row = Row("Einsum", shapes, {"equation": equation})
    return TorchRow(row, lambda t, *v: t.einsum(equation, *v))


ROWS = [
    TorchRow(Row("MatMul", ((2, 3), (3, 4))), lambda t, x, y: x @ y),
    TorchRow(Row("MatMul", ((5, 2, 3), (3, 4))), lambda t, x, y: x @ y),
    TorchRow(Row("MatMul", ((2, 1, 2, 3), (5, 3, 4))), lambda t, x, y: x @ y),
    TorchRow(Row("MatMul", ((3,), (5, 3, 4))), lambda t, x, y: x @ y),
    TorchRow(
        Row("Gemm", ((3, 2), (4, 3), (4,)), {"transA": 1, "transB": 1, "alpha": 2.0, "beta": 0.5}),
        lambda t, x, y, z: 2 * (x.T @ y.T) + 0.5 * z,
    ),
    _einsum("bij,bjk->bik", (5, 2, 3), (5, 3, 4)),
    _einsum("ij,jk,kl->il", (2, 3), (3, 4), (4, 2)),
    _einsum("ii->i", (3, 3)),
    _einsum("ijk,k->i", (2, 3, 4), (4,)),
    _einsum("...ij,...jk->...ik", (2, 1, 2, 3), (1, 5, 3, 4)),
    _conv((2, 3, 6), (4, 3, 3), padding=1),
    _conv((2, 3, 6, 7), (4, 3, 3, 3), stride=2, padding=1),
    _conv((2, 3, 7, 7), (4, 3, 3, 3), dilation=2),
    _conv((2, 4, 6, 5), (6, 2, 3, 3), groups=2, padding=1),
    _conv((2, 4, 6, 5), (4, 1, 3, 3), groups=4, stride=2),
    _conv((1, 32, 5, 5), (2, 32, 3, 3), stride=2, padding=1),
    _conv((1, 2, 9, 9), (3, 2, 7, 7), stride=2, padding=3),
    _conv((2, 2, 4, 4, 4), (3, 2, 2, 2, 2), stride=2),
    _transpose((2, 3, 4), (3, 2, 3), stride=2),
    _transpose((2, 3, 3, 4), (3, 2, 3, 3), stride=2, padding=1, output_padding=1),
    _transpose((2, 4, 3, 3), (4, 2, 3, 3), groups=2, dilation=2),
    _transpose((2, 2, 2, 3, 2), (2, 2, 2, 2, 2), stride=2),
    _pool("MaxPool", "max_pool", (2, 2, 6), 2),
    _pool("MaxPool", "max_pool", (2, 2, 6, 6), 3, stride=2, padding=1),
    _pool("MaxPool", "max_pool", (2, 2, 5, 6), 2, ceil_mode=True),
    _pool("MaxPool", "max_pool", (2, 2, 7, 7), 2, dilation=2, stride=1),
    _pool("MaxPool", "max_pool", (2, 2, 4, 4, 4), 2),
    TorchRow(
        Row(
            "MaxPool",
            ((2, 3, 4, 6),),
            {"kernel_shape": [2, 2], "strides": [2, 2]},
            generate=lambda r, s: r.integers(0, 2, s),
            note="ties",
        ),
        lambda t, x: t.nn.functional.max_pool2d(x, 2),
    ),
    _pool("AveragePool", "avg_pool", (2, 2, 6), 2),
    _pool("AveragePool", "avg_pool", (2, 2, 6, 6), 3, stride=2, padding=1),
    _pool("AveragePool", "avg_pool", (2, 2, 6, 6), 3, padding=1, count_include_pad=True),
    _pool("AveragePool", "avg_pool", (2, 2, 5, 6), 2, ceil_mode=True),
    _pool("AveragePool", "avg_pool", (2, 2, 4, 4, 4), 2),
    TorchRow(
        Row("GlobalAveragePool", ((2, 3, 4, 2),)),
        lambda t, x: t.nn.functional.adaptive_avg_pool2d(x, 1),
    ),
    TorchRow(
        Row("GlobalMaxPool", ((2, 3, 4, 2),), generate=spread),
        lambda t, x: t.nn.functional.adaptive_max_pool2d(x, 1),
    ),
    TorchRow(
        Row("GlobalMaxPool", ((2, 3, 4, 2),), generate=lambda r, s: np.ones(s), note="ties"),
        lambda t, x: t.nn.functional.adaptive_max_pool2d(x, 1),
    ),
    TorchRow(
        Row(
            "LpPool",
            ((2, 2, 6, 6),),
            {"kernel_shape": [2, 2], "strides": [2, 2], "p": 3},
            generate=positive,
        ),
        lambda t, x: t.nn.functional.lp_pool2d(x, 3, 2),
    ),
    TorchRow(
        Row(
            "BatchNormalization",
            ((3, 2, 2, 3), (2,), (2,), Constant([0.1, 0.2]), Constant([1.0, 2.0])),
        ),
        lambda t, x, w, c: t.nn.functional.batch_norm(
            x, t.tensor([0.1, 0.2]).double(), t.tensor([1.0, 2.0]).double(), w, c
        ),
    ),
    TorchRow(
        Row(
            "BatchNormalization",
            ((3, 2, 2, 3), (2,), (2,), Constant([0.1, 0.2]), Constant([1.0, 2.0])),
            {"training_mode": 1},
            outputs=3,
            differentiable=1,
        ),
        lambda t, x, w, c: t.nn.functional.batch_norm(x, None, None, w, c, training=True),
    ),
    TorchRow(
        Row("InstanceNormalization", ((2, 3, 4, 2), (3,), (3,))),
        lambda t, x, w, c: t.nn.functional.instance_norm(x, weight=w, bias=c),
    ),
    TorchRow(
        Row("LayerNormalization", ((2, 3, 4), (4,), (4,))),
        lambda t, x, w, c: t.nn.functional.layer_norm(x, (4,), w, c),
    ),
    TorchRow(
        Row("LayerNormalization", ((2, 3, 4), (3, 4), (3, 4)), {"axis": 1}),
        lambda t, x, w, c: t.nn.functional.layer_norm(x, (3, 4), w, c),
    ),
    TorchRow(
        Row(
            "GroupNormalization",
            ((2, 4, 3), (4,), (4,)),
            {"num_groups": 2, "stash_type": 11},
            opset=21,
        ),
        lambda t, x, w, c: t.nn.functional.group_norm(x, 2, w, c),
    ),
    TorchRow(
        Row("RMSNormalization", ((2, 3, 4), (4,)), {"stash_type": 11}, opset=24),
        lambda t, x, w: t.nn.functional.rms_norm(x, (4,), w, 1e-5),
    ),
    TorchRow(
        Row("LpNormalization", ((2, 3, 4),)), lambda t, x: t.nn.functional.normalize(x, dim=-1)
    ),
    TorchRow(
        Row("LRN", ((2, 5, 2, 2),), {"size": 3, "alpha": 0.3}),
        lambda t, x: t.nn.functional.local_response_norm(x, 3, alpha=0.3),
    ),
    TorchRow(Row("Softmax", ((2, 3, 4),), {"axis": 1}), lambda t, x: x.softmax(1)),
    TorchRow(Row("LogSoftmax", ((2, 3, 4),)), lambda t, x: x.log_softmax(-1)),
    _loss((4, 3), [2, 0, 1, 2]),
    _loss((4, 3), [2, 0, 1, 2], reduction="sum"),
    _loss((4, 3), [2, 0, 1, 2], reduction="none"),
    _loss((4, 3), [2, 0, 1, 2], Constant(WEIGHT)),
    _loss((4, 3), [2, 0, 1, 2], Constant(WEIGHT), ignore_index=2),
    _loss((2, 3, 2), [[2, 0], [-1, 2]], ignore_index=-1),
    _nll((4, 3), [2, 0, 1, 2], reduction="mean"),
    _nll((2, 3, 2), [[2, 0], [1, 2]], reduction="none"),
    _resize((6, 8), "nearest"),
    _resize((5, 7), "linear", align_corners=False),
    _resize((5, 7), "linear", align_corners=True),
]


@pytest.mark.share(2)
@pytest.mark.parametrize("case", ROWS, ids=str)
def test_outputs_and_gradients_equal_those_of_pytorch(case: TorchRow) -> None:
    check_torch(case)
