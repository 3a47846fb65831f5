"""The next value of each state computed on its own, for an engine that fuses no further than one.

OpenVINO 2026.4 computes a chain of operators of one element as one node, but of the values in it
one at most may be an output of the model: Adam's w, m and v are three nodes that hand tensors on to
each other, 50 bytes of traffic per weight with a gradient in bfloat16. Computed apart, with what is
common computed again, each of them reads gradient and states and writes one output: 38 bytes, and
no node has two outputs. An MLP's step in bfloat16 takes 3 to 7 % less time.

OpenVINO joins equal nodes again; those of a copy are told apart by a factor of 1 that no constant
has: it comes from outside. They round as the engine likes, the next w and m in their last digits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import prod

import onnx_ir as ir

from amp_rewrite.graph.step_part import Part, part_of
from amp_rewrite.graph.traverse import remove_unused_nodes
from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.builder.known import dims, same_shape

_LARGE = 4096
"""From that many elements on; for fewer, another node costs more than a copy."""

# operators: those of one element that updates consist of.
_ELEMENTS = "Add Sub Mul Div Neg Abs Sign Sqrt Reciprocal Pow Max Min Where Cast"


def separate_updates(model: ir.Model, states: Collection[str]) -> None:
    """Compute large outputs apart that share operators of one element, in place.

    Types and shapes are known.
    """
    graph = model.graph
    counter = next((v for v in graph.inputs if v.name in states and _counts(v)), None)
    if counter is None:
        return
    order = {node: index for index, node in enumerate(graph)}
    copies: dict[ir.Node, int] = {}
    b = Builder(model, scope="separate", part=Part.UPDATE)
    ones: dict[tuple[int, ir.DataType], ir.Value] = {}

    def told_apart(leaf: ir.Value) -> ir.Value:
        """Return a leaf times the factor 1 of the copy that is being made."""
        key = copy, b.type_of(leaf)
        ones[key] = ones[key] if key in ones else b.cast(b.equal(counter, counter), key[1])
        return b.mul(leaf, ones[key])

    for output in list(graph.outputs):
        chain = sorted(_chain(output), key=order.__getitem__)
        copy = max((copies[node] for node in chain if node in copies), default=0)
        copies.update(dict.fromkeys(chain, copy + 1))
        if copy:
            _copy(b, chain, output, told_apart)
    if ones:
        graph.sort()
        remove_unused_nodes(graph)


def _counts(value: ir.Value) -> bool:
    return value.dtype is ir.DataType.INT64 and dims(value) == ()


def _is_float(value: ir.Value) -> bool:
    return value.dtype is not None and value.dtype.is_floating_point()


def _chain(output: ir.Value) -> set[ir.Node]:
    """Return the nodes that compute a large output of its own elements, for updates alone."""
    lengths = dims(output) or ()
    nodes: set[ir.Node] = set()
    left = [output] if prod(length or 0 for length in lengths) >= _LARGE else []
    while left:
        node = left.pop().producer()
        if node is None or node in nodes or dims(node.outputs[0]) != lengths or not _updates(node):
            continue
        if all(_updates(use.node) for use in node.outputs[0].uses()):
            nodes.add(node)
            left.extend(value for value in node.inputs if value is not None)
    return nodes


def _updates(node: ir.Node) -> bool:
    elementwise = node.op_type in _ELEMENTS.split() and not node.domain
    return elementwise and (part_of(node) is Part.UPDATE or node.op_type == "Cast")


def _copy(
    b: Builder, chain: list[ir.Node], output: ir.Value, told_apart: Callable[[ir.Value], ir.Value]
) -> None:
    """Compute an output by nodes of its own, each of which differs from what it is a copy of."""
    copies: dict[ir.Value, ir.Value] = {}
    for node in chain:
        old = node.outputs[0]
        inputs = [value if value is None else copies.get(value, value) for value in node.inputs]
        own = [v for v in inputs if v is not None and same_shape(v, old) and _is_float(v)]
        if own and inputs == list(node.inputs):
            inputs[inputs.index(own[0])] = told_apart(own[0])
        new = b.op(node.op_type, *inputs, **{a.name: a.value for a in node.attributes.values()})
        new.type, new.shape = old.type, old.shape
        copies[old] = new
    new, name = copies[output], output.name
    output.name = f"{name}:shared"
    new.name = name
    b.graph.outputs[:] = [new if value is output else value for value in b.graph.outputs]
