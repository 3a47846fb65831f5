"""Gradients of Fourier transforms; g is the gradient of the output y."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.rule import Gradients, Rules
from amp_rewrite.grad.rules.arithmetic import Received, known, operands, rank_of
from amp_rewrite.grad.rules.formula import Formulas, count, option, refuse
from amp_rewrite.grad.rules.window import ranked

_AXIS_INPUT = 20
"""The opset from which a DFT takes its axis as an input."""


def dft(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = F x, F of L points: F^H g, the inverse transform times L; 1 / L times F g for F^-1.

    What the result has of a one-sided spectrum is padded with zeros. Where x is one (the inverse of
    it is real), all but the first and the middle element count twice.
    """
    x = operands(node)[0]
    g, rank = ranked(known(gs[0]), x), rank_of(node, b, x)
    attributes = node.attributes
    axis = _axis(node, b) % rank
    inverse = attributes.get_int("inverse", 0)
    onesided = attributes.get_int("onesided", 0)
    points = b.dim(g if inverse or not onesided else x, axis)
    given = option(node, 1)
    if given is not None:
        points = b.reshape(b.cast(given, ir.DataType.INT64), [1])
    if not inverse:
        result = b.mul(
            _dft(b, _fitted(b, g, axis, points), axis, inverse=1), b.cast_like(points, g)
        )
    else:
        result = b.div(_dft(b, g, axis, onesided=onesided), b.cast_like(points, g))
    if inverse and onesided:
        place = b.unsqueeze(count(b, b.dim(result, axis)), range(1, rank - axis))
        twice = b.logical_and(b.greater(place, 0), b.logical_not(b.equal(b.mul(place, 2), points)))
        result = b.mul(result, b.add(b.cast_like(twice, g), 1))
    if (b.dims(x) or (None,))[-1] != 2:  # a real x; unknown: by its last length
        result = b.slice(result, [0], b.dim(x, -1), [rank - 1])
    return [b.shaped_like(_fitted(b, result, axis, b.dim(x, axis)), x)]


def _axis(node: ir.Node, b: Builder) -> int:
    if b.opset < _AXIS_INPUT:
        return node.attributes.get_int("axis", 1)
    axis = option(node, 2)
    found = [-2] if axis is None else b.ints(axis)
    if found is None:
        raise refuse(node, "a DFT along a computed axis")
    return found[0]


def _dft(
    b: Builder, x: ir.Value, axis: int, *, inverse: int | None = None, onesided: int | None = None
) -> ir.Value:
    how: dict[str, Any] = {"inverse": inverse, "onesided": onesided or None}
    if b.opset < _AXIS_INPUT:
        return ranked(b.op("DFT", x, axis=axis, **how), x)
    return ranked(b.op("DFT", x, None, b.constant(axis), **how), x)


def _fitted(b: Builder, x: ir.Value, axis: int, length: ir.Value) -> ir.Value:
    """Return x cut off, or padded with zeros at its end, to a length along an axis."""
    dims, wanted = b.dims(x) or (), b.ints(length)
    if wanted is not None and dims[axis] == wanted[0]:
        return x
    cut = b.slice(x, [0], length, [axis])
    missing, rest = b.sub(length, b.dim(cut, axis)), [0] * (len(dims) - axis - 1)
    pads = b.concat([b.constant([0] * (len(dims) + axis)), missing, b.vector(rest)], 0)
    return b.op("Pad", cut, pads)


def stft(node: ir.Node, b: Builder) -> list[ir.Value]:
    """y = the DFT of frames of x, (batch, length, 1 or 2), times a window."""
    x, step = operands(node)[:2]
    window, given = option(node, 2), option(node, 3)
    if given is not None:
        length = b.reshape(b.cast(given, ir.DataType.INT64), [1])
    else:
        length = b.dim(x, 1) if window is None else b.dim(window, 0)
    step = b.reshape(b.cast(step, ir.DataType.INT64), [])
    end = b.reshape(b.add(b.sub(b.dim(x, 1), length), 1), [])
    starts = b.op("Range", b.constant(0), end, step)
    frames = b.gather(x, b.add(b.unsqueeze(starts, [1]), count(b, length)), 1)
    if window is not None:
        frames = b.mul(frames, b.unsqueeze(window, [1]))
    return [_dft(b, frames, 2, onesided=node.attributes.get_int("onesided", 1))]


RULES: Rules = {"DFT": dft}
FORMULAS: Formulas = {"STFT": stft}
