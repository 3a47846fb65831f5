"""Convolutions and pooling in 1 to 3 dimensions, each attribute with each other."""

from __future__ import annotations

from itertools import product

from gradient_table import NEWEST, Row, normal, spread

LENGTHS = (5, 4, 4)
RANKS = (1, 2, 3)


def _window(rank: int, stride: int, padding: int, dilation: int) -> dict[str, list[int]]:
    return {
        "strides": [stride] * rank,
        "pads": [padding] * 2 * rank,
        "dilations": [dilation] * rank,
    }


def _convolutions() -> list[Row]:
    rows: list[Row] = []
    for rank, group, stride, padding, dilation in product(RANKS, (1, 2), (1, 2), (0, 1), (1, 2)):
        window = {**_window(rank, stride, padding, dilation), "group": group}
        space, taps = LENGTHS[:rank], (3, 2, 2)[:rank]
        x, w, bias = (2, 4, *space), (2, 4 // group, *taps), (2,)
        rows.append(Row("Conv", (x, w, bias), window, opset=NEWEST if group == 2 else 16))
        x, w, bias = (2, 2, *(3, 2, 2)[:rank]), (2, 2, *taps), (2 * group,)
        for extra in range(min(stride, 2)):
            more = {"output_padding": [extra] * rank}
            rows.append(Row("ConvTranspose", (x, w, bias), {**window, **more}, opset=18))
    return rows


def _pools() -> list[Row]:
    rows: list[Row] = []
    for rank, stride, padding, ceil in product(RANKS, (1, 2), (0, 1), (False, True)):
        x = (2, 2, *LENGTHS[:rank])
        shared = {"kernel_shape": [3] * rank, "ceil_mode": int(ceil)}
        for dilation in (1, 2) if padding else (1,):
            window = {**shared, **_window(rank, stride, padding, dilation)}
            rows.append(Row("MaxPool", (x,), window, opset=NEWEST, generate=spread))
        for counted in (False, True) if padding else (False,):
            window = {**shared, **_window(rank, stride, padding, 1)}
            window |= {"count_include_pad": int(counted)}
            rows.append(Row("AveragePool", (x,), window, opset=NEWEST, generate=normal))
    return rows


CONVOLUTIONS = _convolutions()
POOLS = _pools()

AUTO_PADDED = [
    Row(
        op,
        ((1, 2, *(5, 4, 3)[:rank]), (2, 2, *(3, 2, 2)[:rank])),
        {"auto_pad": how, "strides": [stride] * rank},
        opset=opset,
        lengths="the padding depends on them",
    )
    for op, opset in (("Conv", 16), ("ConvTranspose", NEWEST))
    for rank, stride, how in product(RANKS, (1, 2), ("SAME_UPPER", "SAME_LOWER", "VALID"))
]
