"""The gradient of a convolution with respect to its weight: the fastest form.

ONNX Runtime 1.31.1, CPU, 2 threads, milliseconds; the least of repeated runs on a machine shared
with others, which the two halves of the table do not share:

    N   C   H=W  M    kernel stride | swapped  columns  taps   rows
    64  1   28   32   3      1      |   0.54     0.34    0.70
    64  32  14   64   3      1      |   5.04     2.55    2.28
    32  16  32   16   3      1      |   4.78     2.03    2.60
    32  32  16   64   3      2      |   1.03     0.87    0.48
    32  64  16   128  1      1      |   2.93     0.43    0.62
    16  3   64   64   7      2      |   1.70     2.71   12.25
    8   64  56   64   3      1      |  25.06    23.03   15.15
    32  3   32   16   3      1      |            0.34    1.79   0.71
    32  16  32   16   3      1      |            2.18    2.38   1.49
    32  16  32   32   3      2      |            1.49    1.21
    32  32  16   32   3      1      |            1.19    0.98   1.12

swapped: one Conv whose batch are the channels (N and C exchanged), strides and dilations exchanged.
columns: one Slice per tap, their concatenation, one Gemm (one batched product for groups).
taps: one Slice and one Gemm per tap, channels last.
rows: x shifted along all spatial axes but the first, g along the first; one Gemm per shift of g.
One Conv of N x C groups and columns by Gather take 4 to 25 times as long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

import onnx_ir as ir

from amp_rewrite.grad.builder.builder import Builder, Shape
from amp_rewrite.grad.rules.window import Lengths, Window, spatial, static, tail

_END = 2**31
_MANY_TAPS = 25
"""Above it, `swapped` wins, and its number of nodes does not grow with the taps."""
_MANY_CHANNELS = 32
"""From it on, rows of channels are long enough for a product per tap."""
_SOME_CHANNELS = 16
"""From it on, `columns` copies more than `rows` does; with strides, `taps` is better than both."""


def weight_gradient(
    b: Builder, x: ir.Value, g: ir.Value, w: ir.Value, window: Window, group: int
) -> ir.Value:
    """Return dw[m, c, k] = sum over n and positions p of g[n, m, p] x[n, c, p stride + k dilation].

    x is (N, C, *lengths), not padded, g (N, M, *positions), and w (M, C / group, *kernel), of which
    only the shape is used.
    """
    sizes = static(b.dims(w))
    if sizes is None or prod(sizes[2:]) > _MANY_TAPS:
        return b.shaped_like(_swapped(b, x, g, w, window, group), w)
    outputs, channels, *kernel = sizes
    moves = set(window.strides) != {1}
    if group > 1 or prod(kernel) == 1 or channels < _SOME_CHANNELS:
        gradient = _columns(b, x, g, sizes, window, group)
    elif channels >= _MANY_CHANNELS or moves:
        gradient = _taps(b, x, g, sizes, window)
    elif outputs <= 2 * channels and kernel[0] > 1:
        gradient = _rows(b, x, g, sizes, window)
    else:
        gradient = _columns(b, x, g, sizes, window, group)
    return b.shaped_like(gradient, w)


def _swapped(
    b: Builder, x: ir.Value, g: ir.Value, w: ir.Value, window: Window, group: int
) -> ir.Value:
    rank = len(window.strides)
    swap = [1, 0, *range(2, 2 + rank)]
    images = b.transpose(x, swap)
    if group > 1:
        split = b.concat([b.constant([group, -1]), b.slice(b.shape(images), [1], [2 + rank])], 0)
        images = b.transpose(b.reshape(images, split), [1, 0, *range(2, 3 + rank)])
        merged = b.concat([b.constant([0, -1]), tail(b, x)], 0)
        images = b.reshape(images, merged)
    convolved = b.op(
        "Conv",
        images,
        b.transpose(g, swap),
        strides=window.dilations,
        dilations=window.strides,
        pads=window.pads,
        group=group,
    )
    # Lengths that the strides do not divide leave positions after the last tap.
    cropped = b.slice(convolved, [0] * rank, tail(b, w), list(range(2, 2 + rank)))
    return b.transpose(cropped, swap)


def _taps(b: Builder, x: ir.Value, g: ir.Value, sizes: Lengths, window: Window) -> ir.Value:
    outputs, channels, *kernel = sizes
    rank = len(kernel)
    last = [0, *range(2, 2 + rank), 1]
    positions = b.reshape(b.transpose(g, last), [-1, outputs])
    images = _padded(b, b.transpose(x, last), window, 1)
    products = [
        b.op("Gemm", positions, b.reshape(part, [-1, channels]), transA=1)
        for part in _slices(b, images, g, window, 1)
    ]
    stacked = b.reshape(b.concat(products, 0), [*kernel, outputs, channels])
    return b.transpose(stacked, [rank, rank + 1, *range(rank)])


def _columns(
    b: Builder, x: ir.Value, g: ir.Value, sizes: Lengths, window: Window, group: int
) -> ir.Value:
    outputs, channels, *kernel = sizes
    taps = prod(kernel)
    swap = [1, 0, *range(2, 2 + len(kernel))]
    images = _padded(b, b.transpose(x, swap), window, 2)
    columns = b.concat(list(_slices(b, images, g, window, 2)), 1)
    if group == 1:
        rows = b.reshape(b.transpose(g, swap), [outputs, -1])
        result = b.op("Gemm", rows, b.reshape(columns, [channels * taps, -1]), transB=1)
    else:
        columns = b.reshape(columns, [group, channels * taps, -1])
        rows = b.reshape(b.transpose(g, swap), [group, outputs // group, -1])
        # g is the smaller of the two: transpose it before the product, and the product.
        result = b.matmul(columns, b.transpose(rows, [0, 2, 1]))
        result = b.transpose(result, [0, 2, 1])
    return b.reshape(result, list(sizes))


def _rows(b: Builder, x: ir.Value, g: ir.Value, sizes: Lengths, window: Window) -> ir.Value:
    """Return the gradient for strides of 1: g, padded to the rows of x, meets x at each shift."""
    outputs, channels, first, *others = sizes
    rank = 1 + len(others)
    swap = [1, 0, *range(2, 2 + rank)]
    images, positions = _padded(b, b.transpose(x, swap), window, 2), b.transpose(g, swap)
    shifted = [images]
    if others:
        shifted = [
            b.slice(images, *_shift(tap, others, window.dilations[1:]), list(range(3, 2 + rank)))
            for tap in product(*map(range, others))
        ]
    right = b.reshape(b.concat(shifted, 0), [prod(others) * channels, -1])
    products: list[ir.Value] = []
    for tap in range(first):
        ends = [0] * (2 + rank), [0] * (2 + rank)
        ends[0][2], ends[1][2] = (n * window.dilations[0] for n in (tap, first - 1 - tap))
        moved = b.op("Pad", positions, b.vector([*ends[0], *ends[1]]))
        products.append(b.op("Gemm", right, b.reshape(moved, [outputs, -1]), transB=1))
    gradient = b.reshape(b.concat(products, 0), [first, *others, channels, outputs])
    return b.transpose(gradient, [rank + 1, rank, *range(rank)])


def _shift(tap: Lengths, kernel: Sequence[int], dilations: Lengths) -> tuple[list[int], list[int]]:
    """Return where the positions of a tap begin and end, the latter counted from the end."""
    starts = [k * d for k, d in zip(tap, dilations, strict=True)]
    left = [(n - 1) * d - s for n, d, s in zip(kernel, dilations, starts, strict=True)]
    return starts, [-n if n else _END for n in left]


def _padded(b: Builder, images: ir.Value, window: Window, first: int) -> ir.Value:
    """Return images with zeros around their spatial axes, of which `first` is the first."""
    if not any(window.pads):
        return images
    behind = 4 - 2 - first
    before, after = [0] * first, [0] * behind
    pads = [*before, *window.begin, *after, *before, *window.end, *after]
    return b.op("Pad", images, b.vector(pads))


def _slices(
    b: Builder, images: ir.Value, g: ir.Value, window: Window, first: int
) -> Iterator[ir.Value]:
    """Yield, for each tap, the elements that it meets at each position."""
    kernel = window.kernel or ()
    if set(kernel) == set(window.strides) == {1}:
        yield images
        return
    axes = list(range(first, first + len(kernel)))
    positions = static(spatial(b, g))
    for tap in product(*map(range, kernel)):
        starts = [k * d for k, d in zip(tap, window.dilations, strict=True)]
        ends = _ends(b, g, positions, starts, window.strides)
        yield b.slice(images, starts, ends, axes, window.strides)


def _ends(
    b: Builder, g: ir.Value, positions: Lengths | None, starts: list[int], strides: Lengths
) -> Shape:
    """Return where the last position ends: start + (positions - 1) stride + 1."""
    if positions is not None:
        each = zip(positions, starts, strides, strict=True)
        return [start + (n - 1) * stride + 1 for n, start, stride in each]
    offsets = [start - stride + 1 for start, stride in zip(starts, strides, strict=True)]
    return b.add(b.mul(tail(b, g), b.vector(strides)), b.vector(offsets))
