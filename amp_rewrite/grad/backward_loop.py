"""A Loop over the turns of another one, the last one first, and the states that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from amp_rewrite.errors import GradientError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.builder.known import copied
from amp_rewrite.graph.metadata_keys import PART_KEY
from amp_rewrite.graph.names import place
from amp_rewrite.graph.step_part import Part
from amp_rewrite.graph.traits import Trait, has, operator
from amp_rewrite.graph.traverse import remove_unused_nodes, subgraphs


def repeated(b: Builder, graph: ir.Graph) -> ir.Graph:
    """Return a copy of a subgraph that reads the same outer values, and has names of its own.

    Raises:
        GradientError: It draws random numbers, of which the copy would draw others.
    """
    _check_repeatable(b, graph)
    copied = graph.clone(allow_outer_scope_values=True)
    pairs = zip(copied.all_nodes(), graph.all_nodes(), strict=True)
    b.originals.update((copy, b.originals.get(node, node)) for copy, node in pairs)
    _rename(b, copied)
    return copied


def _check_repeatable(b: Builder, graph: ir.Graph) -> None:
    """Refuse random numbers."""
    for node in graph:
        mode = node.inputs[2] if operator(node) == "Dropout" and len(node.inputs) > 2 else None
        drops = mode is not None and b.ints(mode) != [0]
        if drops or has(node, Trait.RANDOM):
            raise GradientError(
                "random numbers inside an If or a loop have no gradient",
                where=place(node),
                remedy="move the operator out of it, or turn its training mode off",
            )
        for inner in subgraphs(node):
            _check_repeatable(b, inner)


def _rename(b: Builder, graph: ir.Graph) -> None:
    """Give everything in a copied graph a name of its own."""
    for value in (*graph.inputs, *graph.initializers.values()):
        value.name = b.free_name(value.name or "value")
    for node in graph:
        node.name = b.free_name(node.name or node.op_type)
        for value in node.outputs:
            value.name = b.free_name(value.name) if value.name else value.name
        for inner in subgraphs(node):
            _rename(b, inner)


@dataclass(eq=False)
class Carried:
    """A state that a loop carries from turn to turn."""

    first: ir.Value  # before the first turn
    before: ir.Value  # the body's input
    after: ir.Value | None = None  # the body's output
    last: ir.Value | None = None  # the loop's output


@dataclass(eq=False)
class Stacked:
    """A value of each turn, stacked along a new first axis."""

    part: ir.Value  # the body's output
    whole: ir.Value | None = None  # the loop's output


class BackwardLoop:
    """A Loop while its body is being made; `turn` is the number of the forward turn."""

    def __init__(self, b: Builder, body: ir.Graph) -> None:
        """Take over a copy of the forward body, which loses its inputs and outputs."""
        self._b, self.body, self.inner = b, body, b.child(body)
        self.turn, self._goes_on = body.inputs[:2]
        self._carried: list[Carried] = []
        self._stacked: list[Stacked] = []
        body.inputs.clear()
        body.outputs.clear()

    def carry(self, first: ir.Value, stem: str) -> Carried:
        """Return a state, whose `after` has to be set."""
        name = self.inner.free_name(f"{self.body.name}/{stem}")
        before = ir.Value(name=name, type=first.type, shape=copied(first.shape))
        self._carried.append(Carried(first, before))
        return self._carried[-1]

    def add_up(self, zeros: ir.Value, part: ir.Value, stem: str) -> Carried:
        """Return a state that is the sum of the parts of all turns, in the type of the zeros."""
        total = self.carry(zeros, stem)
        part = self.inner.cast_like(part, zeros)
        total.after = self.inner.shaped_like(self.inner.add(total.before, part), zeros)
        addition = total.after.producer()
        if addition is not None:
            addition.metadata_props[PART_KEY] = Part.SUM
        return total

    def stack(self, part: ir.Value) -> Stacked:
        """Let each turn give out a value."""
        self._stacked.append(Stacked(part))
        return self._stacked[-1]

    def slice(self, whole: ir.Value, like: ir.Value) -> ir.Value:
        """Return the part of the present forward turn of a value that all turns have stacked."""
        return self.inner.shaped_like(self.inner.gather(whole, self.turn), like)

    def end_body(self) -> None:
        """Declare the outputs of a turn, and remove from the copy what none of them needs."""
        ends = [self._goes_on, *(c.after for c in self._carried), *(s.part for s in self._stacked)]
        # An output of a body is computed in it, and is one output only.
        self.body.outputs.extend(self.inner.op("Identity", value) for value in ends)
        remove_unused_nodes(self.body)

    def finish(self, turns: ir.Value) -> None:
        """Add the Loop; `turns` are the numbers of the forward turns: (n,) int64."""
        b, inner = self._b, self.inner
        count = b.op("Size", turns)
        number = inner.free_name(f"{self.body.name}/turn")
        done = ir.Value(name=number, type=self.turn.type, shape=ir.Shape([]))
        ir.convenience.replace_all_uses_with(self.turn, inner.sub(b.sub(count, 1), done))
        self.body.inputs.extend([done, self._goes_on, *(c.before for c in self._carried)])
        self.body.sort()
        firsts = [c.first for c in self._carried]
        number_of_outputs = len(self._carried) + len(self._stacked)
        results = b.op("Loop", count, None, *firsts, outputs=number_of_outputs, body=self.body)
        self._hand_out(results if isinstance(results, tuple) else (results,))

    def _hand_out(self, outputs: Sequence[ir.Value]) -> None:
        for carried, output in zip(self._carried, outputs, strict=False):
            output.type, output.shape = carried.first.type, copied(carried.first.shape)
            carried.last = output
        for stacked, output in zip(self._stacked, outputs[len(self._carried) :], strict=True):
            lengths = self._b.symbolic_dims(stacked.part)
            output.type = stacked.part.type
            output.shape = None if lengths is None else ir.Shape([None, *lengths])
            stacked.whole = output


def settled(value: ir.Value | None) -> ir.Value:
    """Return a value that a loop has once it is finished."""
    assert value is not None, "the loop is not finished"
    return value


_FIRST_OUTPUT = 1  # of a body: before it is whether another turn follows


def history(b: Builder, node: ir.Node, index: int, like: ir.Value) -> ir.Value:
    """Return the values that an input of a Loop's body had in all turns, stacked.

    The Loop gets an output for it unless it has one; `like` has the shape of each.

    Raises:
        GradientError: It is not a tensor.
    """
    body = node.attributes["body"].as_graph()
    value = body.inputs[index]
    if not isinstance(like.type, ir.TensorType):
        raise GradientError(
            "a state that a loop carries is not a tensor, and a gradient depends on it",
            where=place(node),
            found=f"{value.name!r} of type {like.type}",
            remedy="carry tensors: let each turn give its part out as an output of the loop",
        )
    return _known(node, body, value) or _added(b, node, body, value, like)


def _known(node: ir.Node, body: ir.Graph, value: ir.Value) -> ir.Value | None:
    states = len(body.inputs) - 2
    outputs = list(zip(node.outputs, body.outputs[_FIRST_OUTPUT:], strict=False))
    return next((o for o, inside in outputs[states:] if o.name and _copies(inside, value)), None)


def _copies(value: ir.Value, source: ir.Value) -> bool:
    node = value.producer()
    return node is not None and node.op_type == "Identity" and node.inputs[0] is source


def _added(b: Builder, node: ir.Node, body: ir.Graph, value: ir.Value, like: ir.Value) -> ir.Value:
    inside = b.child(body).op("Identity", value)
    inside.producer().metadata_props.clear()  # it belongs to the forward model
    inside.type = like.type
    inside = b.shaped_like(inside, like)
    body.outputs.append(inside)
    node.resize_outputs(len(body.outputs) - _FIRST_OUTPUT)
    output = node.outputs[-1]
    output.name = b.free_name(f"{node.name or node.op_type}/{value.name}")
    output.type = like.type
    lengths = b.symbolic_dims(like)
    output.shape = None if lengths is None else ir.Shape([None, *lengths])
    return output


def drop_unused_history(graph: ir.Graph) -> None:
    """Let the Loops of a graph give out nothing at their end that nobody reads, in place."""
    for node in graph:
        if node.op_type == "Loop" and not node.domain:
            _drop(node)


def _drop(node: ir.Node) -> None:
    body, count = node.attributes["body"].as_graph(), len(node.outputs)
    states = len(body.inputs) - 2
    unread = [not value.uses() and not value.is_graph_output() for value in node.outputs]
    while count > max(states, 1) and unread[count - 1]:
        count -= 1
    if count < len(node.outputs):
        node.resize_outputs(count)
        kept = body.outputs[: count + _FIRST_OUTPUT]
        body.outputs.clear()
        body.outputs.extend(kept)
        remove_unused_nodes(body)
