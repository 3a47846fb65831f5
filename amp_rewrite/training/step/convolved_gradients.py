"""Gradients of convolutions' weights as convolutions, for an engine that these are fastest on.

`grad.rules.convolution_weight` chooses the form that is fastest on ONNX Runtime, mostly products of
columns that are copied out of x. OpenVINO convolves in place: one thread of an AMD EPYC, CPU
milliseconds, kernels of 3 x 3, the products in float32 and bfloat16 and one Conv in both:

    N   C   H=W  M  | products     | one Conv     | PyTorch 2.13.0, float32
    64  32  8    64 | 4.57  3.39   | 2.61  2.20   | 1.78
    32  16  32   16 | 9.39  5.97   | 5.24  4.32   | 2.73
    32  32  16   32 | 5.43  7.02   | 3.46  2.89   | 2.42
    32  64  8    64 | 5.72  4.97   | 2.75  1.71   | 2.41
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from amp_rewrite.graph.part import Part, source_key, source_of
from amp_rewrite.graph.traverse import ancestors, remove_unused_nodes
from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.builder.known import constant_tensor, dims
from amp_rewrite.training.grad.rules.convolution_weight import swapped
from amp_rewrite.training.grad.rules.window import read_window, static

_LOW_CONV = 22
"""The opset from which Conv takes bfloat16."""


def convolve_gradients(model: ir.Model) -> None:
    """Compute gradients of weights by one Conv each where products of copies do it, in place.

    Args:
        model: A step whose types and shapes are known.
    """
    graph = model.graph
    by_source: dict[str, set[ir.Node]] = {}
    for node in graph:
        source = source_of(node)
        if source is not None:
            by_source.setdefault(source, set()).add(node)
    b = Builder(model, scope="convolved", part=Part.GRADIENT)
    for node in list(graph):
        if node.op_type == "Conv" and not node.domain and source_of(node) is None:
            _convolve(b, node, by_source.get(source_key(node), set()))
    if b.added:
        graph.sort()
        remove_unused_nodes(graph)


def _convolve(b: Builder, conv: ir.Node, backward: set[ir.Node]) -> None:
    x, w = conv.inputs[:2]
    if x is None or w is None or conv.attributes.get_int("group", 1) != 1:
        return
    gradient = _gradient_of(w, backward)
    if gradient is None:
        return
    nodes = ancestors([gradient], within=backward)
    if any(node.op_type == "Conv" for node in nodes):
        return
    read = _read_from_outside(nodes)
    images = [v for v in read if _widest(v) is _widest(x)]
    others = [v for v in read if v not in images]
    if len(images) != 1 or len(others) != 1:
        return
    image, received = images[0], others[0]
    if b.opset < _LOW_CONV:
        image, received = _widest(image), _widest(received)
    if image.dtype is not received.dtype or image.dtype is None:
        return
    if b.opset < _LOW_CONV and image.dtype.itemsize < ir.DataType.FLOAT.itemsize:
        return
    window = read_window(conv, b, image, static((dims(w) or ())[2:]))
    b.source = conv
    found = swapped(b, image, received, w, window, 1)
    new = b.cast(found, gradient.dtype or ir.DataType.FLOAT)
    b.source = None
    ir.convenience.replace_all_uses_with(gradient, new, replace_graph_outputs=True)
    name, gradient.name = gradient.name, f"{gradient.name}:by products"
    new.name, new.type, new.shape = name, gradient.type, gradient.shape


def _gradient_of(w: ir.Value, backward: set[ir.Node]) -> ir.Value | None:
    """Return what has the weight's shape and is read by no other node of the backward pass."""
    shape = dims(w)
    # operators: those that the forms of `convolution_weight` end in.
    ends = [node.outputs[0] for node in backward if node.op_type in ("Transpose", "Reshape")]
    found = [
        value
        for value in ends
        if dims(value) == shape and not any(use.node in backward for use in value.uses())
    ]
    return found[0] if shape is not None and len(found) == 1 else None


def _read_from_outside(nodes: set[ir.Node]) -> list[ir.Value]:
    made = {value for node in nodes for value in node.outputs}
    read: Iterable[ir.Value | None] = (value for node in nodes for value in node.inputs)
    known = [v for v in read if v is not None and v not in made and constant_tensor(v) is None]
    return list(dict.fromkeys(known))


def _widest(value: ir.Value) -> ir.Value:
    """Return what a value was before casts."""
    node = value.producer()
    while node is not None and node.op_type == "Cast" and node.inputs[0] is not None:
        value = node.inputs[0]
        node = value.producer()
    return value
