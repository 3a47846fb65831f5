"""Bodies of If, Loop and Scan in the main graph, as they ran on one feed.

What is inside a body cannot be fetched or told to a model. Once it is known how often a loop turns
and which branch is taken, every turn can stand in the main graph, with names of its own. How a
model decides these things stays in it as values, which say whether it would have run
in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.graph.added import origin
from amp_rewrite.graph.clone import clone
from amp_rewrite.graph.traits import operator
from amp_rewrite.graph.traverse import graphs_in, nodes_in, subgraphs
from amp_rewrite.numerics.compare.selections import selects, take_over
from amp_rewrite.numerics.inputs.batches import Array

Key = tuple[str, ...]
"""A node with bodies: its operator, and the names of its outputs in the original."""

Turns = Mapping[Key, int]
"""How often a loop turns; of If 1 for the first branch and 0 for the other one."""

_BRANCHES = ("else_branch", "then_branch")
_AXES_ARE_INPUTS_FROM = 13
_PLACE = re.compile(r"(?P<name>.*?) \((?:turn \d+|then_branch|else_branch) of .*\)", re.DOTALL)


def holders(model: ir.Model) -> dict[Key, ir.Node]:
    """Return the nodes of a main graph in whose bodies a node selects, in order.

    Scan of opset 8, which has a batch, is none of them.
    """
    return {_key(node): node for node in _selecting_nodes(model) if not _is_batched(node)}


def batched(model: ir.Model) -> list[Key]:
    """Return the Scans of opset 8 in whose bodies a node selects: they are not unrolled."""
    return [_key(node) for node in _selecting_nodes(model) if _is_batched(node)]


def _selecting_nodes(model: ir.Model) -> Iterator[ir.Node]:
    for node in model.graph:
        # operators: these three run bodies
        if operator(node) not in ("If", "Loop", "Scan") or not any(subgraphs(node)):
            continue
        if any(selects(inner) for inner in nodes_in(node)):
            yield node


def _is_batched(node: ir.Node) -> bool:
    return node.op_type == "Scan" and len(node.inputs) > 0 and node.inputs[0] is None


def _key(node: ir.Node) -> Key:
    return (node.op_type, *(origin(value.name or "") for value in node.outputs))


def written_name(name: str) -> str:
    """Return the name that a value or node of an unrolled body has in the model's file."""
    match = _PLACE.fullmatch(name)
    return match["name"] if match else name


def asking(model: ir.Model, keys: Sequence[Key]) -> tuple[ir.Model, list[str]]:
    """Return a copy of a model that says how nodes with bodies run, and the names of what says it.

    The values are the condition of If, the numbers of a Loop's turns, and what Scan goes along.
    """
    copy = clone(model)
    nodes = holders(copy)
    return copy, [_asked_name(nodes[key]) for key in keys]


def _asked_name(node: ir.Node) -> str:
    if node.op_type != "Loop":
        place = 0 if node.op_type == "If" else len(node.inputs) - _count_scanned(node)
        value = node.inputs[place]
        return "" if value is None else value.name or ""
    body = node.attributes["body"].as_graph()
    number = ir.Node("", "Identity", [body.inputs[0]], name=_place("number", 0, node))
    number.outputs[0].name = number.name
    number.outputs[0].type = ir.TensorType(ir.DataType.INT64)
    body.append(number)
    body.outputs.append(number.outputs[0])
    node.resize_outputs(len(node.outputs) + 1)
    turns = node.outputs[-1]
    turns.name, turns.type = _place("turns", 0, node), ir.TensorType(ir.DataType.INT64)
    return turns.name


def turns_of(key: Key, node: ir.Node, asked: Any) -> int:
    """Return how often a node turns, or which branch it takes.

    Args:
        key: The node.
        node: The node in the original.
        asked: The value that `asking` named, from a run.
    """
    if key[0] == "If":
        return int(bool(np.asarray(asked).reshape(-1)[0]))
    if key[0] == "Loop":
        return len(asked)
    axis = _ints(node, "scan_input_axes", _count_scanned(node))[0]
    return int(np.shape(asked)[axis])


def size_of(node: ir.Node, turns: int) -> int:
    """Return how many nodes a node becomes."""
    if node.op_type == "If":
        return sum(1 for _ in _inner_nodes(node.attributes[_BRANCHES[turns]].as_graph()))
    return turns * sum(1 for _ in _inner_nodes(node.attributes["body"].as_graph()))


def _inner_nodes(graph: ir.Graph) -> Iterator[ir.Node]:
    for each in graphs_in(graph):
        yield from each


def unrolled(model: ir.Model, turns: Turns) -> tuple[ir.Model, list[str]]:
    """Return a copy of a model with bodies in its main graph, each as often as it ran.

    Returns:
        The copy, and the names of what says how often a model itself would have run them. A value
        of a body is called by its own name and its place, a node's outputs as before.

    Raises:
        GraphError: The graph is not sorted.
    """
    copy = clone(model)
    decisions: list[str] = []
    nodes = holders(copy)
    for key, count in turns.items():
        decisions += _Unrolling(copy, nodes[key], count).run()
    return copy, decisions


def _place(name: str, turn: int | str, node: ir.Node) -> str:
    """Return the name of something in a turn, or a branch, of a node with bodies."""
    where = turn if isinstance(turn, str) else f"turn {turn}"
    return f"{name} ({where} of {origin(node.outputs[0].name or '')})"


def _count_scanned(node: ir.Node) -> int:
    return node.attributes.get_int("num_scan_inputs", 1)


def _ints(node: ir.Node, name: str, count: int) -> list[int]:
    attribute = node.attributes.get(name)
    return [0] * count if attribute is None else list(attribute.as_ints())


@dataclass
class _Unrolling:
    """One node with bodies on its way into the main graph of a model."""

    model: ir.Model
    node: ir.Node
    turns: int
    decisions: list[str] = field(default_factory=list[str])
    _added: int = 0

    def run(self) -> list[str]:
        """Put the bodies in place of the node; return the names of what decides how they run."""
        run = {"If": self._branch, "Loop": self._loop, "Scan": self._scan}[self.node.op_type]
        graph = self.model.graph
        results = run()
        for old, result in zip(list(self.node.outputs), results, strict=True):
            if not old.name:
                continue
            new = result
            if isinstance(old.type or result.type, ir.TensorType | None):  # others have no Identity
                new = self._add("Identity", [result], "output", 0)
                new.type, new.shape = old.type, old.shape
            take_over(old, new, f"{old.name}/unrolled")
        graph.remove(self.node)
        return self.decisions

    def _branch(self) -> list[ir.Value]:
        name = _BRANCHES[self.turns]
        self._decides(self.node.inputs[0], 0)
        graph = self.node.attributes[name].as_graph()
        self._prepare(graph, name)
        return self._turn(graph, name, [])

    def _loop(self) -> list[ir.Value]:
        limit, begins, *carried = self.node.inputs
        self._decides(limit, 0)
        self._decides(begins, 0)
        body = self.node.attributes["body"].as_graph()
        self._prepare(body, "body")
        states = len(carried)
        collected: list[list[ir.Value]] = [[] for _ in body.outputs[1 + states :]]
        values = _all_given(carried)
        for turn in range(self.turns):
            number = self._constant(np.array(turn, np.int64), body.inputs[0], turn)
            again = self._constant(np.array(True), body.inputs[1], turn)
            goes_on, *rest = self._turn(body, turn, [number, again, *values])
            self._decides(goes_on, turn)
            values = rest[:states]
            for parts, value in zip(collected, rest[states:], strict=True):
                parts.append(value)
        return [*values, *(self._stack_turns(parts, 0) for parts in collected)]

    def _scan(self) -> list[ir.Value]:
        count = _count_scanned(self.node)
        inputs = _all_given(self.node.inputs)
        values, along = inputs[: len(inputs) - count], inputs[len(inputs) - count :]
        self._decides(self._add("Shape", [along[0]], "length", 0), 0)
        body = self.node.attributes["body"].as_graph()
        self._prepare(body, "body")
        states = len(values)
        collected: list[list[ir.Value]] = [[] for _ in body.outputs[states:]]
        for turn in range(self.turns):
            rest = self._turn(body, turn, [*values, *self._slices(along, turn)])
            values = rest[:states]
            for parts, value in zip(collected, rest[states:], strict=True):
                parts.append(value)
        axes = _ints(self.node, "scan_output_axes", len(collected))
        backwards = _ints(self.node, "scan_output_directions", len(collected))
        ends = zip(collected, axes, backwards, strict=True)
        stacked = (self._stack_turns(p[::-1] if back else p, axis) for p, axis, back in ends)
        return [*values, *stacked]

    def _slices(self, along: Sequence[ir.Value], turn: int) -> Iterator[ir.Value]:
        """Yield what a turn of Scan reads of each value that it goes along."""
        axes = _ints(self.node, "scan_input_axes", len(along))
        backwards = _ints(self.node, "scan_input_directions", len(along))
        for value, axis, back in zip(along, axes, backwards, strict=True):
            place = np.array(self.turns - 1 - turn if back else turn, np.int64)
            index = self._constant(place, None, turn)
            yield self._add("Gather", [value, index], "slice", turn, ir.AttrInt64("axis", axis))

    def _prepare(self, graph: ir.Graph, place: str) -> None:
        """Move the weights of a body out of it: all turns read the same ones."""
        for name, value in list(graph.initializers.items()):
            del graph.initializers[name]
            value.name = _place(name, place, self.node)
            self.model.graph.register_initializer(value)

    def _turn(self, body: ir.Graph, turn: int | str, values: Sequence[ir.Value]) -> list[ir.Value]:
        """Copy a body in front of the node; return what its outputs are there."""
        copied = body.clone(allow_outer_scope_values=True)
        inside = list(graphs_in(copied))
        for graph in inside:
            for value in (*graph.inputs, *(v for node in graph for v in node.outputs)):
                value.name = _place(value.name, turn, self.node) if value.name else value.name
                value.shape = _without_names(value.shape)
            for node in graph:
                node.name = _place(node.name, turn, self.node) if node.name else node.name
        meant = dict(zip(copied.inputs, values, strict=True))
        for old, new in meant.items():
            for user, index in tuple(old.uses()):
                user.replace_input_with(index, new)
        for graph in inside[1:]:
            for index, value in enumerate(tuple(graph.outputs)):
                graph.outputs[index] = meant.get(value, value)
        results = [meant.get(value, value) for value in copied.outputs]
        copied.outputs.clear()
        nodes = list(copied)
        copied.remove(nodes)
        self.node.prepend(nodes)
        return results

    def _decides(self, value: ir.Value | None, turn: int) -> None:
        """Keep a value that says how the bodies run, under a name that both models have."""
        if value is not None:
            kept = self._add("Identity", [value], "decision", turn)
            self.decisions.append(kept.name or "")

    def _add(
        self, op: str, inputs: Sequence[ir.Value], what: str, turn: int, *attributes: ir.Attr
    ) -> ir.Value:
        """Put a node in front of the node with bodies."""
        self._added += 1
        name = _place(f"{what} {self._added}", turn, self.node)
        node = ir.Node("", op, inputs, attributes, name=name)
        node.outputs[0].name = name
        self.node.prepend(node)
        return node.outputs[0]

    def _constant(self, number: Array, stands_for: ir.Value | None, turn: int) -> ir.Value:
        """Return a constant of the shape of what it stands for, () or (1)."""
        shape = None if stands_for is None else stands_for.shape
        array = number.reshape(1) if shape is not None and len(shape) == 1 else number
        tensor = ir.AttrTensor("value", ir.tensor(array))
        return self._add("Constant", [], "constant", turn, tensor)

    def _stack_turns(self, parts: Sequence[ir.Value], axis: int) -> ir.Value:
        """Return the values of all turns along a new axis."""
        axis_ = ir.AttrInt64("axis", axis)
        if self.model.graph.opset_imports.get("", 0) < _AXES_ARE_INPUTS_FROM:
            axes = ir.AttrInt64s("axes", [axis])
            each = [self._add("Unsqueeze", [part], "part", 0, axes) for part in parts]
        else:
            where = self._constant(np.array([axis], np.int64), None, 0)
            each = [self._add("Unsqueeze", [part, where], "part", 0) for part in parts]
        return self._add("Concat", each, "parts", 0, axis_)


def _without_names(shape: ir.Shape | None) -> ir.Shape | None:
    """Return a shape without names of dimensions: one name may be another size in each turn."""
    lengths = None if shape is None else [d if isinstance(d, int) else None for d in shape]
    return None if lengths is None else ir.Shape(lengths)


def _all_given(values: Sequence[ir.Value | None]) -> list[ir.Value]:
    return [value for value in values if value is not None]
