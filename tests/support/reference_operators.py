"""Operators that the reference evaluator of the onnx package gets wrong, written out in numpy.

Its ConvTranspose fails for groups and for batches, its LRN takes the batch for the channels, its
GlobalMaxPool reduces two axes only, it has no GlobalLpPool, and its MeanVarianceNormalization
exists for float32 only, its LayerNormalization has no stash_type but float32 (onnx 1.23.2).
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

Array = np.ndarray[Any, Any]


class ConvTranspose(OpRun):
    """Each x[n, c, p] adds x w[c, m, k] to y[n, m, p stride + k dilation - pad]."""

    def _run(
        self,
        x: Array,
        w: Array,
        bias: Array | None = None,
        auto_pad: str = "NOTSET",
        dilations: list[int] | None = None,
        group: int = 1,
        kernel_shape: list[int] | None = None,
        output_padding: list[int] | None = None,
        output_shape: list[int] | None = None,
        pads: list[int] | None = None,
        strides: list[int] | None = None,
    ) -> tuple[Array]:
        rank = x.ndim - 2
        strides, dilations = strides or [1] * rank, dilations or [1] * rank
        extra = output_padding or [0] * rank
        spans = [
            (n - 1) * s + (k - 1) * d + 1
            for n, s, k, d in zip(x.shape[2:], strides, w.shape[2:], dilations, strict=True)
        ]
        begin, lengths = _placed(x, spans, extra, strides, auto_pad, output_shape, pads)
        full = [max(s, b + n) for s, b, n in zip(spans, begin, lengths, strict=True)]
        per_group = w.shape[1]
        y = np.zeros((x.shape[0], per_group * group, *full), x.dtype)
        split = (x.shape[0], group, x.shape[1] // group, *x.shape[2:])
        weights = w.reshape(group, x.shape[1] // group, *w.shape[1:])
        for tap in product(*map(range, w.shape[2:])):
            part = np.einsum("ngc...,gcm->ngm...", x.reshape(split), weights[(..., *tap)])
            place = tuple(
                slice(k * d, k * d + (n - 1) * s + 1, s)
                for k, d, n, s in zip(tap, dilations, x.shape[2:], strides, strict=True)
            )
            y[(slice(None), slice(None), *place)] += part.reshape(x.shape[0], -1, *x.shape[2:])
        crop = tuple(slice(b, b + n) for b, n in zip(begin, lengths, strict=True))
        y = y[(slice(None), slice(None), *crop)]
        return (y if bias is None else y + bias.reshape(-1, *[1] * rank),)


def _placed(
    x: Array,
    spans: list[int],
    extra: list[int],
    strides: list[int],
    auto_pad: str,
    output_shape: list[int] | None,
    pads: list[int] | None,
) -> tuple[list[int], list[int]]:
    """Return where the output begins in what is written, and its lengths."""
    rank = x.ndim - 2
    if auto_pad.startswith("SAME") and not output_shape:
        output_shape = [n * s for n, s in zip(x.shape[2:], strides, strict=True)]
    if output_shape:
        lengths = list(output_shape[-rank:])
        total = [max(s + e - n, 0) for s, e, n in zip(spans, extra, lengths, strict=True)]
        upper = auto_pad == "SAME_UPPER"
        return [t // 2 if upper else t - t // 2 for t in total], lengths
    pads = pads or [0] * (2 * rank)
    ends = zip(spans, extra, pads[:rank], pads[rank:], strict=True)
    return pads[:rank], [s + e - before - after for s, e, before, after in ends]


class LRN(OpRun):
    """Local response normalization over channels, of any rank."""

    def _run(
        self,
        x: Array,
        alpha: float = 1e-4,
        beta: float = 0.75,
        bias: float = 1.0,
        size: int = 1,
    ) -> tuple[Array]:
        before, behind = (size - 1) // 2, size // 2
        sums = [(x[:, max(0, c - before) : c + behind + 1] ** 2).sum(1) for c in range(x.shape[1])]
        return (x / (bias + alpha / size * np.stack(sums, 1)) ** beta,)


class LayerNormalization(OpRun):
    """Normalization over the axes from `axis` on, in float64, with all its outputs."""

    def _run(
        self,
        x: Array,
        scale: Array,
        bias: Array | None = None,
        axis: int = -1,
        epsilon: float = 1e-5,
        stash_type: int = 1,
    ) -> tuple[Array, Array, Array]:
        over = tuple(range(axis % x.ndim, x.ndim))
        mean = x.mean(over, keepdims=True)
        r = 1 / np.sqrt(x.var(over, keepdims=True) + epsilon)
        y = (x - mean) * r * scale
        return (y if bias is None else y + bias, mean, r)


class MeanVarianceNormalization(OpRun):
    """(x - mean) / (standard deviation + 1e-9)."""

    def _run(self, x: Array, axes: list[int] | None = None) -> tuple[Array]:
        over = tuple(axes or (0, 2, 3))
        deviation = x.std(over, keepdims=True)
        return ((x - x.mean(over, keepdims=True)) / (deviation + 1e-9),)


class GlobalMaxPool(OpRun):
    """The largest element of each channel."""

    def _run(self, x: Array) -> tuple[Array]:
        return (x.max(tuple(range(2, x.ndim)), keepdims=True),)


class GlobalLpPool(OpRun):
    """The p-norm of each channel."""

    def _run(self, x: Array, p: int = 2) -> tuple[Array]:
        total = (np.abs(x) ** p).sum(tuple(range(2, x.ndim)), keepdims=True)
        return (total ** (1 / p),)


OPERATORS = [
    ConvTranspose,
    GlobalLpPool,
    GlobalMaxPool,
    LRN,
    LayerNormalization,
    MeanVarianceNormalization,
]
