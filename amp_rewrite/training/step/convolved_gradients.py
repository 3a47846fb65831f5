"""Gradients of convolutions' weights as convolutions, for an engine that these are fastest on.

`grad.rules.convolution_weight` chooses the form that is fastest on ONNX Runtime, mostly products of
columns that are copied out of x. OpenVINO convolves in place: one thread of an AMD EPYC, CPU
milliseconds, kernels of 3 x 3, the products in float32 and bfloat16 and one Conv in both:

    N   C   H=W  M  | products     | one Conv     | PyTorch 2.13.0, float32
    64  32  8    64 | 4.57  3.39   | 2.61  2.20   | 1.78
    32  16  32   16 | 9.39  5.97   | 5.24  4.32   | 2.73

One Conv whose batch are the channels (N and C exchanged) has three positions in a row, of which
oneDNN makes products three rows high. So x is one image here, of N channels, whose last axis holds
positions and channels, as they lie in memory that is channels-last; g is dilated by C along it, and
each row of the result has 3 C positions. Two threads, copies included, milliseconds in bfloat16 and
float32:

    N   C   H=W  M   stride | channels as batch | beside the positions
    32  16  32   16  1      |   1.59   3.17     |   0.76   2.13
    64  32  14   64  1      |   2.25   5.30     |   2.06   3.75
    16  3   64   64  2, 7x7 |   1.57   4.93     |   1.43   4.41

Where rows of g begin a multiple of 2 KiB apart, the caches hold few of them at once: packing g
takes four times as long then as with a line of zeros behind (0.55 ms of 1.27 in the first row).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod

import onnx_ir as ir

from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.builder.known import constant_tensor, dims, take_place
from amp_rewrite.grad.rules.window import Window, read_window, static
from amp_rewrite.graph.step_part import Part, source_in, source_key
from amp_rewrite.graph.traverse import ancestors, remove_unused_nodes

Form = Callable[[Builder, ir.Value, ir.Value, Sequence[int | None], Window], ir.Value | None]

_LOW_CONV = 22
"""The opset from which Conv takes bfloat16."""

_CONFLICT = 1024
"""Rows of this number of positions, or a multiple, are a multiple of 2 KiB apart."""


def convolve_gradients(model: ir.Model, form: Form | None = None, b: Builder | None = None) -> None:
    """Compute gradients of weights by one Conv each where products of copies do it, in place.

    Types and shapes are known. A `form` returns the gradient, or None, given builder, x, g, sizes
    of w, and window. The owner of a builder `b` sorts the graph.
    """
    graph = model.graph
    by_source: dict[str, set[ir.Node]] = {}
    casts = {node for node in graph if _rounds(node)}
    for node in graph:
        source = source_in(node.metadata_props)
        if source is not None:
            by_source.setdefault(source, set()).add(node)
    own = b is None
    b = b or Builder(model, scope="convolved", part=Part.GRADIENT)
    for node in list(graph):
        if node.op_type == "Conv" and not node.domain and source_in(node.metadata_props) is None:
            backward = by_source.get(source_key(node), set())
            _convolve(b, node, backward, casts, form or _one_image)
    if b.added and own:
        graph.sort()
        remove_unused_nodes(graph)


def _convolve(
    b: Builder, conv: ir.Node, backward: set[ir.Node], casts: set[ir.Node], form: Form
) -> None:
    x, w = conv.inputs[:2]
    if x is None or w is None or conv.attributes.get_int("group", 1) != 1:
        return
    gradient = _gradient_of(w, backward)
    if gradient is None:
        return
    nodes = ancestors([gradient], within=backward | casts)
    if any(node.op_type == "Conv" for node in nodes):
        return
    read = _read_from_outside(nodes)
    images = [v for v in read if v is _widest(x)]
    others = [v for v in read if v not in images]
    # operators: those that the forms of `convolution_weight` multiply by.
    products = [node for node in nodes if node.op_type in ("Gemm", "MatMul")]
    if len(images) != 1 or len(others) != 1 or not products or products[0].inputs[0] is None:
        return
    dtype = products[0].inputs[0].dtype or ir.DataType.FLOAT
    dtype = dtype if b.opset >= _LOW_CONV else ir.DataType.FLOAT
    image, received = b.cast(images[0], dtype), b.cast(others[0], dtype)
    window = read_window(conv, b, image, static((dims(w) or ())[2:]))
    b.source = conv
    convolved = form(b, image, received, dims(w) or (), window)
    if convolved is not None:
        take_place(b.cast(convolved, gradient.dtype or ir.DataType.FLOAT), gradient)
    b.source = None


def _one_image(
    b: Builder, x: ir.Value, g: ir.Value, sizes: Sequence[int | None], window: Window
) -> ir.Value | None:
    """Return what `convolution_weight.weight_gradient` does, by the form of the module's text."""
    if any(static(lengths) is None for lengths in (dims(x), dims(g), sizes)):
        return None
    outputs, channels, *kernel = (length or 0 for length in sizes)
    images, *lengths = (length or 0 for axis, length in enumerate(dims(x) or ()) if axis != 1)
    positions = [length or 0 for length in dims(g) or ()][2:]
    rank = len(kernel)
    space = list(range(2, 2 + rank))
    image = b.transpose(x, [0, *space, 1])
    image = b.reshape(image, [1, images, *lengths[:-1], lengths[-1] * channels])
    # Not in one Transpose, which OpenVINO does element by element.
    taps = b.transpose(b.reshape(g, [images, outputs, -1]), [1, 0, 2])
    taps = b.reshape(taps, [outputs, images, *positions])
    behind = int(prod(positions) % _CONFLICT == 0)
    if behind:
        pads = [0] * (2 * (2 + rank))
        pads[2 + rank + 2] = behind
        taps = b.op("Pad", taps, b.vector(pads))
    wide = [*[1] * (rank - 1), channels]
    end = [window.end[0] + behind * window.strides[0], *window.end[1:]]
    convolved = b.op(
        "Conv",
        image,
        taps,
        strides=[*window.dilations[:-1], 1],
        dilations=_times(window.strides, wide),
        pads=[*_times(window.begin, wide), *_times(end, wide)],
    )
    return cropped(b, convolved, [outputs, channels, *kernel], window)


def cropped(b: Builder, gradient: ir.Value, sizes: Sequence[int], window: Window) -> ir.Value:
    """Return (M, C, *kernel) of (1, M, *positions), positions and channels in the last axis."""
    outputs, channels, *kernel = sizes
    rank = len(kernel)
    wide, space = [*[1] * (rank - 1), channels], list(range(2, 2 + rank))
    # Lengths that the strides do not divide leave positions behind the last tap.
    apart = window.dilations[-1]
    kept = [*kernel[:-1], (kernel[-1] - 1) * apart + 1]
    gradient = b.slice(gradient, [0] * rank, _times(kept, wide), space)
    gradient = b.reshape(gradient, [outputs, *kept, channels])
    if apart > 1:
        gradient = b.slice(gradient, [0], [kept[-1]], [rank], [apart])
    return b.transpose(gradient, [0, rank + 1, *range(1, rank + 1)])


def _times(ones: Sequence[int], others: Sequence[int]) -> list[int]:
    return [one * other for one, other in zip(ones, others, strict=True)]


def _gradient_of(w: ir.Value, backward: set[ir.Node]) -> ir.Value | None:
    """Return what has the weight's shape and is read by no other node of the backward pass."""
    shape = dims(w)
    # operators: those that the forms of `convolution_weight` end in.
    ends = [node.outputs[0] for node in backward if node.op_type in ("Transpose", "Reshape")]
    gradients = [
        value
        for value in ends
        if dims(value) == shape and not any(use.node in backward for use in value.uses())
    ]
    return gradients[0] if shape is not None and len(gradients) == 1 else None


def _read_from_outside(nodes: set[ir.Node]) -> list[ir.Value]:
    inner = {value for node in nodes for value in node.outputs}
    read: Iterable[ir.Value | None] = (value for node in nodes for value in node.inputs)
    outer = [v for v in read if v is not None and v not in inner and constant_tensor(v) is None]
    return list(dict.fromkeys(outer))


def _widest(value: ir.Value) -> ir.Value:
    """Return what a value was before casts between floating-point types."""
    node = value.producer()
    while node is not None and _rounds(node) and node.inputs[0] is not None:
        value = node.inputs[0]
        node = value.producer()
    return value


def _rounds(node: ir.Node) -> bool:
    """Return whether a node casts from one floating-point type to another."""
    if node.op_type != "Cast" or node.domain or node.inputs[0] is None:
        return False
    types = node.inputs[0].dtype, node.outputs[0].dtype
    return all(dtype is not None and dtype.is_floating_point() for dtype in types)
