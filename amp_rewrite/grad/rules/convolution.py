"""Gradients of convolutions; g is the gradient of the output y."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import onnx_ir as ir

from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.rule import Gradients, Rules
from amp_rewrite.grad.rules.arithmetic import Received, known, operands
from amp_rewrite.grad.rules.convolution_weight import weight_gradient
from amp_rewrite.grad.rules.window import (
    Window,
    ranked,
    read_window,
    scatter_windows,
    spatial,
    static,
    tail,
    unknown_padding,
)

_MANY_COLUMNS = 2**24
"""Channels times taps times positions: how many numbers ConvTranspose computes first."""


def conv(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = x * w + bias: g convolved back with w; x convolved with g; g summed over N and space.

    Dumoulin and Visin, "A guide to convolution arithmetic for deep learning", 2016,
    https://arxiv.org/abs/1603.07285, section 4.
    """
    x, w = operands(node)[:2]
    g = ranked(known(gs[0]), ranked(x, w))
    window = read_window(node, b, x, static(spatial(b, w)))
    group = node.attributes.get_int("group", 1)
    by_x = _by_data(b, x, w, g, window, group)
    by_w = weight_gradient(b, x, g, w, window, group) if w in b.varying else None
    return [by_x, by_w, *_by_bias(node, b, g)]


def conv_transpose(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = x convolved back with w, + bias: g * w; g convolved with x; g summed over N, space."""
    x, w = operands(node)[:2]
    g = ranked(known(gs[0]), ranked(x, w))
    window = _transposed_window(node, b, x, w)
    group = node.attributes.get_int("group", 1)
    by_x = b.op(
        "Conv",
        g,
        w,
        strides=window.strides,
        dilations=window.dilations,
        pads=window.pads,
        group=group,
    )
    if any(p for p in node.attributes.get_ints("output_padding", ())) or window.ceil:
        # The padding after y may be enough for one more position of the window.
        rank = len(window.strides)
        by_x = b.slice(by_x, [0] * rank, tail(b, x), list(range(2, 2 + rank)))
    by_w = weight_gradient(b, g, x, w, window, group) if w in b.varying else None
    return [b.shaped_like(by_x, x), by_w, *_by_bias(node, b, g)]


def _by_data(
    b: Builder, x: ir.Value, w: ir.Value, g: ir.Value, window: Window, group: int
) -> ir.Value:
    """Return g convolved back with w.

    For single taps that is a convolution with w transposed, of which ONNX Runtime 1.31.1 makes a
    product right away: 0.32 in place of 0.75 ms for g (32, 128, 16, 16), 64 channels, CPU, 2
    threads. For larger kernels a convolution with the flipped w takes as long as ConvTranspose, but
    for constant weights of the forms of `_is_flipped`.
    """
    single = set(window.kernel or ()) == set(window.strides) == {1} and not any(window.pads)
    if single and group == 1:
        back = b.transpose(w, [1, 0, *range(2, 2 + len(window.strides))])
        return b.shaped_like(b.op("Conv", g, back), x)
    if _is_flipped(b, x, w, window, group):
        return _by_flipped(b, x, w, g, window, group)
    return scatter_windows(b, g, w, x, window, group)


def _is_flipped(b: Builder, x: ir.Value, w: ir.Value, window: Window, group: int) -> bool:
    """Tell whether a convolution with the flipped w is faster than ConvTranspose.

    Measured with ONNX Runtime 1.32.0, 2 cores, batch 1, constant w. Faster: each channel has its
    own kernel (5 x 5, 240 channels: 2.2 times; 3 x 3, 16 channels: 3 times); g has fewer channels
    than x (64 of 128: 1.5; 16 of 64: 1.7; 3 of 64: 13; 1 of 32: 15); ConvTranspose has 64 MiB and
    more of columns (1.2 to 2.7 times). With as many channels it takes .8 to 1.2 times as long, and
    where g has twice as many it is 2 times slower.
    """
    sizes = static(b.dims(w))
    if sizes is None or b.array(w) is None or set(window.strides) != {1}:
        return False
    if any(p >= e for p, e in zip(window.pads, window.extent * 2, strict=True)):
        return False
    results, channels = sizes[0], sizes[1] * group
    if group > 1 or results == channels == 1:
        return group == results == channels
    columns = prod(sizes[1:]) * prod(static(spatial(b, x)) or (1,))
    return 2 * results <= channels or columns >= _MANY_COLUMNS


def _by_flipped(
    b: Builder, x: ir.Value, w: ir.Value, g: ir.Value, window: Window, group: int
) -> ir.Value:
    """Return g convolved with the flipped w, of one group or as many groups as channels."""
    rank = len(window.strides)
    axes = list(range(2, 2 + rank))
    back = b.slice(w, [-1] * rank, [-(2**63)] * rank, axes, [-1] * rank)
    back = back if group > 1 else b.transpose(back, [1, 0, *axes])
    pads = [e - 1 - p for e, p in zip(window.extent * 2, window.pads, strict=True)]
    y = b.op("Conv", g, back, dilations=window.dilations, pads=pads, group=group)
    return b.shaped_like(y, x)


def _by_bias(node: ir.Node, b: Builder, g: ir.Value) -> Gradients:
    if len(node.inputs) < 3:
        return []
    axes = [0, *range(2, len(b.dims(g) or ()))]
    return [b.reduce_sum(g, axes, keepdims=False)]


def _transposed_window(node: ir.Node, b: Builder, x: ir.Value, w: ir.Value) -> Window:
    """Return the window of the convolution that this one transposes.

    Its `ceil` says that y may have room for more positions of the window than x has elements.
    """
    auto_pad = node.attributes.get_string("auto_pad", "NOTSET")
    kernel = static(spatial(b, w))
    output_shape = node.attributes.get_ints("output_shape", ())
    if not output_shape and auto_pad in ("NOTSET", "VALID"):
        return read_window(node, b, x, kernel)
    # Read the rest; auto_pad of a transposed convolution pads by another formula.
    plain = read_window(node, b, x, kernel, auto_pad=False)
    if plain.kernel is None:
        raise unknown_padding(node, "the kernel's lengths")
    rank = len(plain.strides)
    extra = tuple(node.attributes.get_ints("output_padding", ())) or (0,) * rank
    wanted = plain.strides  # of auto_pad; the output lengths, less what later positions add
    if output_shape:
        lengths = static(spatial(b, x))
        if lengths is None:
            raise unknown_padding(node, "spatial lengths")
        sizes = zip(output_shape[-rank:], lengths, plain.strides, strict=True)
        wanted = tuple(n - (length - 1) * s for n, length, s in sizes)
    totals = [e + p - n for e, p, n in zip(plain.extent, extra, wanted, strict=True)]
    small = tuple(max(t, 0) // 2 for t in totals)
    large = tuple(max(t, 0) - max(t, 0) // 2 for t in totals)
    begin, end = (small, large) if auto_pad == "SAME_UPPER" else (large, small)
    return replace(plain, begin=begin, end=end, ceil=any(t < 0 for t in totals))


RULES: Rules = {"Conv": conv, "ConvTranspose": conv_transpose}
