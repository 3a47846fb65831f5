"""Convolutions and their gradients in blocks of channels, for ONNX Runtime on a CPU.

There weights are inputs of a step, so that ONNX Runtime leaves convolutions in the layout of the
model, where it copies columns out of x. In blocks it convolves in place. Two threads of an AMD
EPYC, ONNX Runtime 1.32.0, kernels of 3 x 3, milliseconds with all copies, as before and in blocks:

    N   C   H=W  M   stride | forward      | by x         | by w
    32  16  32   16  1      | 1.81   0.91  | 2.41   0.92  | 3.36   1.84
    32  16  32   32  2      | 1.06   0.46  |              | 2.79   1.68
    32  32  16   64  2      | 0.71   0.80  |              | 1.66   1.15
    64  32  8    64  1      | 1.00   0.74  | 1.64   0.91  | 1.96   1.29

The small ResNet of `bench.py train`, interleaved on an uneven machine: 36 ms in place of 54.

By x is a Conv with the flipped weight, for strides of 1; by w has each block of x as one image of N
channels, whose last axis holds positions and the block's channels, as in `convolved_gradients`:
with all channels beside the positions they were moved one by one, at 5.5 of 58 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import RunError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.builder.known import constant_tensor, dims, take_place
from amp_rewrite.grad.prepare import record_types
from amp_rewrite.grad.rules.window import Lengths, Window, static
from amp_rewrite.graph.step_part import Part
from amp_rewrite.graph.traverse import remove_unused_nodes
from amp_rewrite.runtimes.ort.sessions import Session, session_options
from amp_rewrite.training.step.convolved_gradients import convolve_gradients, cropped

_BACK = -(2**31)

DOMAIN, VERSION = "com.microsoft.nchwc", 1
"""Of the operators in blocks, to which ONNX Runtime's optimizer moves Conv of constant weights."""

_CHANNELS = 16
"""A multiple of every block."""


def block_convolutions(model: ir.Model) -> None:
    """Compute convolutions in blocks where weights are no constants, in place.

    Those of two spatial axes, in float32, in one group, with more than one tap and channels that
    fill blocks.
    """
    # operators: those that have kernels in blocks, or are such a one's transpose.
    convolutions = [
        n for n in model.graph if n.op_type in ("Conv", "ConvTranspose") and not n.domain
    ]
    block = channel_block() if convolutions else 0
    if not block:
        return
    record_types(model)
    blocks = _Blocks(Builder(model, scope="blocked", part=Part.GRADIENT), block)
    convolve_gradients(model, blocks.by_weight, blocks.b)
    for node in convolutions:
        blocks.move(node)
    if blocks.b.added:
        model.graph.opset_imports[DOMAIN] = VERSION
        model.graph.sort()
        remove_unused_nodes(model.graph)


class _Blocks:
    """Adds nodes in blocks; values are moved into blocks once."""

    def __init__(self, b: Builder, block: int) -> None:
        self.b, self._block = b, block
        self._moved: dict[ir.Value, ir.Value] = {}
        self._op = partial(b.op, domain=DOMAIN)

    def move(self, node: ir.Node) -> None:
        """Compute a node in blocks, if it can be."""
        x, w, *bias = node.inputs
        if x is None or w is None or constant_tensor(w) is not None or not node.graph:
            return
        back = node.op_type == "ConvTranspose"
        sizes, window = static(dims(w)), _plain_window(node)
        whole = (
            sizes is not None and len(sizes) == 4 and not any(n % self._block for n in sizes[:2])
        )
        if not whole or not _is_wide(x) or sizes is None or set(sizes[2:]) == {1}:
            return
        attributes: dict[str, Any] = {
            k: a.value for k, a in node.attributes.items() if k != "kernel_shape"
        }
        if back:
            if window is None or set(window.strides) != {1}:
                return
            room = [(k - 1) * d for k, d in zip(sizes[2:], window.dilations, strict=True)]
            pads = [r - p for r, p in zip([*room, *room], window.pads, strict=True)]
            if min(pads) < 0:
                return
            attributes = {"pads": pads, "dilations": list(window.dilations)}
        elif node.attributes.get_int("group", 1) != 1:
            return
        filters = self._filters(w, sizes, back=back)
        y = self._op("Conv", self._into(x), filters, *bias, kernel_shape=sizes[2:], **attributes)
        y = self._op("ReorderOutput", y, channels=sizes[1 if back else 0])
        take_place(y, node.outputs[0])

    def by_weight(
        self, _b: Builder, x: ir.Value, g: ir.Value, sizes: Sequence[int | None], window: Window
    ) -> ir.Value | None:
        """Return the gradient of a weight, or None where it is not computed in blocks."""
        lengths, positions = static((dims(x) or ())[2:]), static((dims(g) or ())[2:])
        shape = static(sizes)
        if lengths is None or positions is None or shape is None or len(shape) != 4:
            return None
        outputs, channels, *_ = shape
        if not (_is_wide(x) and _is_wide(g)) or outputs % self._block or channels < self._block:
            return None
        b, block, batch = self.b, self._block, (dims(x) or (None,))[0]
        missing = None if batch is None else -batch % block
        begin, end = window.begin, window.end
        image, lanes = self._images(x, channels, lengths)
        image = self._pad(image, [0, 0, 0, begin[1] * lanes], [0, 0, end[1] * lanes], missing)
        images = channels // lanes
        if images > 1:
            image = b.transpose(image, [1, 0, 2, 3])
        row = (lengths[1] + begin[1] + end[1]) * lanes
        image = b.reshape(image, [images, -1, lengths[0], row])
        area = positions[0] * positions[1]
        taps = b.reshape(self._into(g), [-1, outputs // block, area, block])
        taps = self._pad(taps, [0] * 4, [0] * 3, missing)
        if outputs > block:
            taps = b.transpose(taps, [1, 0, 2, 3])
        # Blocks of channels of several examples, put beside each other: examples become channels.
        taps = b.reshape(taps, [-1, block * block, *positions])
        taps = self._op("ReorderOutput", taps, channels=block * block, channels_last=1)
        taps = b.reshape(taps, [outputs, -1, *positions])
        gradient = self._op(
            "Conv",
            self._op("ReorderInput", image),
            taps,
            kernel_shape=positions,
            strides=[window.dilations[0], 1],
            dilations=[window.strides[0], window.strides[1] * lanes],
            pads=[begin[0], 0, end[0], 0],
        )
        gradient = self._op("ReorderOutput", gradient, channels=outputs)
        kernel = shape[2:]
        gradient = cropped(b, gradient, [images * outputs, lanes, *kernel], window)
        if images == 1:
            return gradient
        gradient = b.reshape(gradient, [images, outputs, lanes, *kernel])
        return b.reshape(b.transpose(gradient, [1, 0, 2, 3, 4]), shape)

    def _images(self, x: ir.Value, channels: int, lengths: Lengths) -> tuple[ir.Value, int]:
        """Return x as (N, images, H, W lanes), and how many channels are in the lanes.

        Blocks are images of their own: what is in blocks already is moved by whole blocks then.
        """
        b, block = self.b, self._block
        if channels % block:
            x = b.transpose(x, [0, 2, 3, 1])
            return b.reshape(x, [-1, 1, lengths[0], lengths[1] * channels]), channels
        shape = [-1, channels // block, lengths[0], lengths[1] * block]
        return b.reshape(self._into(x), shape), block

    def _pad(self, x: ir.Value, begin: list[int], end: list[int], missing: int | None) -> ir.Value:
        """Return x with zeros around it, and as many examples as fill blocks."""
        b = self.b
        if missing is not None:
            pads = [*begin, missing, *end]
            return b.op("Pad", x, b.vector(pads)) if any(pads) else x
        size = b.op("Mod", b.neg(b.dim(x, 0)), b.vector([self._block]))
        return b.op("Pad", x, b.concat([b.vector(begin), size, b.vector(end)], 0))

    def _into(self, x: ir.Value) -> ir.Value:
        if x not in self._moved:
            self._moved[x] = self._op("ReorderInput", x)
        return self._moved[x]

    def _filters(self, w: ir.Value, sizes: Lengths, *, back: bool) -> ir.Value:
        """Return (O, I, *kernel) in blocks of both; flipped, O and I exchanged, if back."""
        b, block = self.b, self._block
        outputs, inputs, *kernel = sizes
        if back:
            w = b.slice(w, [-1, -1], [_BACK, _BACK], [2, 3], [-1, -1])
        w = b.reshape(w, [outputs // block, block, inputs // block, block, *kernel])
        w = b.transpose(w, [2, 0, 4, 5, 1, 3] if back else [0, 2, 4, 5, 3, 1])
        return b.reshape(w, [inputs, outputs, *kernel] if back else [*sizes])


def _is_wide(x: ir.Value) -> bool:
    return x.dtype is ir.DataType.FLOAT


def _plain_window(node: ir.Node) -> Window | None:
    """Return the window of a transposed convolution of one group whose padding is written."""
    attributes = node.attributes
    plain = attributes.get_string("auto_pad", "NOTSET") == "NOTSET"
    others = [*attributes.get_ints("output_padding", ()), *attributes.get_ints("output_shape", ())]
    if not plain or any(others) or attributes.get_int("group", 1) != 1:
        return None
    strides, dilations = (tuple(attributes.get_ints(n, (1, 1))) for n in ("strides", "dilations"))
    pads = tuple(attributes.get_ints("pads", (0, 0, 0, 0)))
    return Window(None, strides, dilations, pads[:2], pads[2:])


@cache
def channel_block() -> int:
    """Return how many channels lie side by side on this machine's CPU; 0 where none do."""
    fed = np.arange(2 * _CHANNELS, dtype=np.float32).reshape(1, _CHANNELS, 1, 2)
    x, y = (ir.Value(name=n, type=ir.TensorType(ir.DataType.FLOAT)) for n in "xy")
    x.shape = ir.Shape(fed.shape)
    node = ir.Node(DOMAIN, "ReorderInput", [x], outputs=[y])
    imports = {"": 17, DOMAIN: VERSION}
    model = ir.Model(ir.Graph([x], [y], nodes=[node], opset_imports=imports), ir_version=8)
    try:
        session = Session(model, options=session_options(threads=1))
        (blocks,) = session.run({"x": fed})
    except RunError:
        return 0
    block = int(np.flatnonzero(blocks.reshape(-1) == 1)[0])  # the first channel's second position
    return block if block > 1 else 0
