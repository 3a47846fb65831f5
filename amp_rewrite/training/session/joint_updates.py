"""Short vectors are updated together: a network has many biases and scales, each little work."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import onnx_ir as ir

from amp_rewrite.graph.step_part import Part
from amp_rewrite.graph.traits import operator
from amp_rewrite.graph.traverse import ancestors, graphs_in
from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.builder.known import take_place
from amp_rewrite.training.optimizers.update_rule import DOMAIN
from amp_rewrite.training.step.faster_forms import ELEMENTWISE

_SCOPE = "joint"
_LONGEST = 4096
"""Elements up to which copying a vector costs less than the nodes of an update of its own."""


def join_updates(model: ir.Model) -> None:
    """Make one call of those that update short vectors by one function, in place.

    The vectors are put one behind the other, and the results are taken apart, which changes no
    number where all that the function computes is elementwise. ONNX Runtime inlines each call as a
    dozen nodes, and takes time in the square of the nodes that can run at once to load a model: a
    step of a transformer, ten of whose 16 variables per layer are vectors, loads in half the time.
    The model computes what it needs and nothing else.
    """
    joinable = {key for key, function in model.functions.items() if _is_elementwise(function)}
    for graph in list(graphs_in(model.graph)):
        groups: dict[Hashable, list[ir.Node]] = {}
        for node in graph:
            if node.op_identifier() in joinable and _updates_vector(node):
                groups.setdefault((node.op_identifier(), *_numbers(node)), []).append(node)
        joined = [calls for calls in groups.values() if len(calls) > 1 and _are_apart(calls)]
        if joined:
            b = Builder(model, graph, scope=_SCOPE, part=Part.UPDATE)
            for calls in joined:
                _join(b, calls)
            graph.sort()


def _is_elementwise(function: ir.Function) -> bool:
    """Return whether each element of an update's results depends on those at its place only."""
    return function.domain == DOMAIN and all(_is_local(node) for node in function)


def _is_local(node: ir.Node) -> bool:
    if node.op_type == "Constant" and not node.domain:
        number = node.attributes.get("value")
        return number is not None and not number.as_tensor().shape
    return operator(node) in ELEMENTWISE.split()


def _updates_vector(call: ir.Node) -> bool:
    """Return whether all that a call reads and makes are numbers and vectors of one length."""
    shapes = [None if v is None or v.shape is None else v.shape.dims for v in call.inputs]
    vector = call.outputs[0].shape
    if vector is None or len(vector.dims) != 1 or call.attributes:
        return False
    length = vector.dims[0]
    fits = all(shape is not None and tuple(shape) in ((), (length,)) for shape in shapes)
    return fits and isinstance(length, int) and length <= _LONGEST


def _numbers(call: ir.Node) -> tuple[ir.Value | None, ...]:
    """Return the inputs that are numbers, which calls share; None for vectors."""
    return tuple(None if _is_vector(value) else value for value in call.inputs)


def _is_vector(value: ir.Value | None) -> bool:
    return value is not None and value.shape is not None and len(value.shape.dims) == 1


def _are_apart(calls: Sequence[ir.Node]) -> bool:
    """Return whether no call reads what another one makes."""
    read = [value for call in calls for value in call.inputs if value is not None]
    return not ancestors(read) & set(calls)


def _join(b: Builder, calls: Sequence[ir.Node]) -> None:
    first, count = calls[0], len(calls[0].outputs)
    inputs: list[ir.Value | None] = []
    for parts in zip(*(call.inputs for call in calls), strict=True):
        vectors = [part for part in parts if part is not None]
        inputs.append(b.concat(vectors, 0) if _is_vector(parts[0]) else parts[0])
    outputs = b.op(first.op_type, *inputs, outputs=count, domain=first.domain)
    lengths = [(b.dims(call.outputs[0]) or (0,))[0] or 0 for call in calls]
    for index, joint in enumerate(outputs if isinstance(outputs, tuple) else (outputs,)):
        pieces = b.split(joint, lengths, 0, len(calls))
        for call, new in zip(calls, pieces, strict=True):
            take_place(new, call.outputs[index])
    b.graph.remove(calls, safe=True)
