"""The geometry that convolutions and pooling share: a window that moves over spatial axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx_ir as ir

from amp_rewrite.errors import GradientError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.graph.names import place

Lengths = tuple[int, ...]


@dataclass(frozen=True)
class Window:
    """A window's size and how it moves; one entry per spatial axis."""

    kernel: Lengths | None  # taps; None where they are not known
    strides: Lengths
    dilations: Lengths
    begin: Lengths  # padding in front
    end: Lengths  # padding after
    ceil: bool = False  # whether a last window may reach beyond the padding

    @property
    def pads(self) -> list[int]:
        """The padding as ONNX writes it."""
        return [*self.begin, *self.end]

    @property
    def extent(self) -> Lengths:
        """How many elements the window spans; the kernel must be known."""
        kernel = self.kernel or ()
        return tuple((k - 1) * d + 1 for k, d in zip(kernel, self.dilations, strict=True))

    @property
    def overlaps(self) -> bool:
        """Whether two positions of the window may share an element."""
        return any(e > s for e, s in zip(self.extent, self.strides, strict=True))


def spatial(b: Builder, x: ir.Value) -> tuple[int | None, ...]:
    """Return the lengths of the axes after the first two."""
    dims = b.dims(x)
    if dims is None:
        raise GradientError(
            "the rank of a value is not known",
            where=f"value {x.name!r}",
            remedy="record its shape in the model's value_info; lengths may be symbolic",
        )
    return dims[2:]


def static(lengths: Sequence[int | None] | None) -> Lengths | None:
    """Return lengths if all of them are known."""
    if lengths is None:
        return None
    static_lengths = tuple(n for n in lengths if n is not None)
    return static_lengths if len(static_lengths) == len(lengths) else None


def read_window(
    node: ir.Node,
    b: Builder,
    x: ir.Value,
    kernel: Lengths | None = None,
    *,
    auto_pad: bool = True,
) -> Window:
    """Return the window of a convolution or a pooling node over x, (N, C, *lengths).

    `kernel` has the taps where the node does not say them; without `auto_pad`, pads of that
    attribute are left out.

    Raises:
        GradientError: auto_pad pads by lengths that are not known.
    """
    lengths, attributes = spatial(b, x), node.attributes
    rank = len(lengths)
    kernel = tuple(attributes.get_ints("kernel_shape", ())) or kernel
    strides = tuple(attributes.get_ints("strides", ())) or (1,) * rank
    dilations = tuple(attributes.get_ints("dilations", ())) or (1,) * rank
    pads = tuple(attributes.get_ints("pads", ())) or (0,) * (2 * rank)
    ceil = bool(attributes.get_int("ceil_mode", 0))
    mode = attributes.get_string("auto_pad", "NOTSET") if auto_pad else "NOTSET"
    plain = Window(kernel, strides, dilations, pads[:rank], pads[rank:], ceil)
    if mode == "NOTSET":
        return plain
    none = (0,) * rank
    if mode == "VALID":
        return replace(plain, begin=none, end=none)
    if kernel is None:
        raise unknown_padding(node, "the kernel's lengths")
    totals: list[int] = []
    for length, stride, extent in zip(lengths, strides, plain.extent, strict=True):
        if length is None and stride > 1:
            raise unknown_padding(node, "spatial lengths")
        left = ((length or 1) - 1) % stride if stride > 1 else 0
        totals.append(max(extent - 1 - left, 0))
    small, large = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
    begin, end = (small, large) if mode == "SAME_UPPER" else (large, small)
    return replace(plain, begin=begin, end=end)


def unknown_padding(node: ir.Node, what: str) -> GradientError:
    """Return the error of a padding that depends on lengths that are not known."""
    return GradientError(
        f"the padding needs {what}, which the model leaves open",
        where=place(node),
        found=", ".join({"auto_pad", "output_shape"} & node.attributes.keys()),
        remedy="fix them in the model's inputs, or give pads (and output_padding) instead",
    )


def scatter_windows(
    b: Builder, g: ir.Value, w: ir.Value, x: ir.Value, window: Window, group: int = 1
) -> ir.Value:
    """Return the transpose of the convolution of x with w, applied to g: a tensor like x.

    The last elements of x, which no window may reach, get zero. g is (N, M, *positions), w
    (M, C / group, *kernel), and x (N, C, *lengths), of which only the shape is used.
    """
    moved: dict[str, Any] = {
        "strides": window.strides,
        "dilations": window.dilations,
        "group": group,
    }
    lengths, positions = static(spatial(b, x)), static(spatial(b, g))
    if lengths is not None and positions is not None and window.kernel is not None:
        covered = [
            (p - 1) * s + e - start
            for p, s, e, start in zip(
                positions, window.strides, window.extent, window.begin, strict=True
            )
        ]
        room = [n - c for n, c in zip(lengths, covered, strict=True)]
        end = [max(-r, 0) for r in room]
        extra = [max(r, 0) for r in room]
        if all(r < s for r, s in zip(extra, window.strides, strict=True)):
            pads, padding = [*window.begin, *end], extra if any(extra) else None
            y = b.op("ConvTranspose", g, w, **moved, pads=pads, output_padding=padding)
            return b.shaped_like(y, x)
    rank = len(window.strides)
    if not window.ceil and all(s == 1 for s in window.strides):
        return b.shaped_like(b.op("ConvTranspose", g, w, **moved, pads=window.pads), x)
    # The last position may end before or after the end of x, by a number known at run time.
    y = b.op("ConvTranspose", g, w, **moved, pads=[*window.begin, *[0] * rank])
    y = b.slice(y, [0] * rank, tail(b, x), list(range(2, 2 + rank)))
    missing = b.sub(tail(b, x), tail(b, y))
    zeros = [0] * (4 + rank)
    return b.shaped_like(b.op("Pad", y, b.concat([b.constant(zeros), missing], 0)), x)


def ranked(g: ir.Value, like: ir.Value) -> ir.Value:
    """Record that a value has the rank of `like`, which inference may not see; return the value."""
    if g.shape is None and like.shape is not None:
        g.shape = ir.Shape([None] * len(like.shape.dims))
    return g


def tail(b: Builder, x: ir.Value) -> ir.Value:
    """Return the spatial lengths of x: 1-D int64, a constant where they are known."""
    dims = b.dims(x)
    static_lengths = None if dims is None else static(dims[2:])
    if static_lengths is not None:
        return b.constant(list(static_lengths))
    return b.slice(b.shape(x), [2], [len(dims or ()) or 2**31])
