"""Convolutions and pooling in 1 to 3 dimensions, each attribute with each other."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

from gradient_table import NEWEST, Row, normal, spread
from torch_table import TorchRow

LENGTHS = (5, 4, 4)
RANKS = (1, 2, 3)


def _function(name: str, rank: int, *given: Any, **options: Any) -> Callable[..., Any]:
    return lambda t, *v: getattr(t.nn.functional, f"{name}{rank}d")(*v, *given, **options)


def _window(rank: int, stride: int, padding: int, dilation: int) -> dict[str, list[int]]:
    return {
        "strides": [stride] * rank,
        "pads": [padding] * 2 * rank,
        "dilations": [dilation] * rank,
    }


def _convolutions() -> list[TorchRow]:
    rows: list[TorchRow] = []
    for rank, group, stride, padding, dilation in product(RANKS, (1, 2), (1, 2), (0, 1), (1, 2)):
        window = {**_window(rank, stride, padding, dilation), "group": group}
        same = {"stride": stride, "padding": padding, "dilation": dilation, "groups": group}
        space, taps = LENGTHS[:rank], (3, 2, 2)[:rank]
        x, w, bias = (2, 4, *space), (2, 4 // group, *taps), (2,)
        row = Row("Conv", (x, w, bias), window, opset=NEWEST if group == 2 else 16)
        rows.append(TorchRow(row, _function("conv", rank, **same)))
        x, w, bias = (2, 2, *(3, 2, 2)[:rank]), (2, 2, *taps), (2 * group,)
        for extra in range(min(stride, 2)):
            more = {"output_padding": [extra] * rank}
            row = Row("ConvTranspose", (x, w, bias), {**window, **more}, opset=18)
            call = _function("conv_transpose", rank, **same, output_padding=extra)
            rows.append(TorchRow(row, call))
    return rows


def _pools() -> list[TorchRow]:
    rows: list[TorchRow] = []
    for rank, stride, padding, ceil in product(RANKS, (1, 2), (0, 1), (False, True)):
        x = (2, 2, *LENGTHS[:rank])
        shared = {"kernel_shape": [3] * rank, "ceil_mode": int(ceil)}
        same = {"stride": stride, "padding": padding, "ceil_mode": ceil}
        for dilation in (1, 2) if padding else (1,):
            window = {**shared, **_window(rank, stride, padding, dilation)}
            row = Row("MaxPool", (x,), window, opset=NEWEST, generate=spread)
            call = _function("max_pool", rank, 3, **same, dilation=dilation)
            rows.append(TorchRow(row, call))
        for counted in (False, True) if padding else (False,):
            window = {**shared, **_window(rank, stride, padding, 1)}
            window |= {"count_include_pad": int(counted)}
            row = Row("AveragePool", (x,), window, opset=NEWEST, generate=normal)
            call = _function("avg_pool", rank, 3, **same, count_include_pad=counted)
            rows.append(TorchRow(row, call))
    return rows


CONVOLUTIONS = _convolutions()
POOLS = _pools()

AUTO_PADDED = [
    Row(
        op,
        ((1, 2, *(5, 4, 3)[:rank]), (2, 2, *(3, 2, 2)[:rank])),
        {"auto_pad": how, "strides": [stride] * rank},
        opset=opset,
    )
    for op, opset in (("Conv", 16), ("ConvTranspose", NEWEST))
    for rank, stride, how in product(RANKS, (1, 2), ("SAME_UPPER", "SAME_LOWER", "VALID"))
]
