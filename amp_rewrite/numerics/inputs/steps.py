"""How often the bodies of Scan and Loop run, and recurrent operators step: what inputs say it.

A made-up sequence of one element shows nothing of a state that is carried on. Which axis of which
input is the sequence is found backward from the operator: from the axis that Scan or LSTM goes
along, and from the number of iterations that a Loop is given or compares its counter with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from amp_rewrite.graph.traits import operator
from amp_rewrite.graph.traverse import subgraphs
from amp_rewrite.numerics.inputs.step_rules import ALONG, COUNTING, Place, Rule, same_axis


@dataclass(frozen=True)
class Steps:
    """What inputs say about the number of steps.

    Attributes:
        axes: Input -> its axes that are gone along, one element a step.
        counts: Inputs that hold a number of steps.
    """

    axes: Mapping[str, tuple[int, ...]]
    counts: frozenset[str]

    def __bool__(self) -> bool:
        """Tell whether any input says how many steps there are."""
        return bool(self.axes or self.counts)

    @staticmethod
    def of(model: ir.Model) -> Steps:
        """Look at a model, which is not changed."""
        return _Search(model).found()


class _Search:
    """One search through a model."""

    def __init__(self, model: ir.Model) -> None:
        self._inputs = {value: value.name or "" for value in model.graph.inputs}
        self._owners: dict[ir.Graph, ir.Node] = {}
        self._stepping: list[ir.Node] = []
        for node in model.graph.all_nodes():
            self._owners |= dict.fromkeys(subgraphs(node), node)
            if operator(node) in _STARTS:
                self._stepping.append(node)

    def found(self) -> Steps:
        axes: dict[str, dict[int, None]] = {}
        counts: set[str] = set()
        for place in self._reached_places():
            name = self._inputs[place.value] if place.value is not None else ""
            if place.counts:
                counts.add(name)
                continue
            for axis in _axes(place):
                axes.setdefault(name, {})[axis] = None
        return Steps(
            {name: tuple(input_axes) for name, input_axes in axes.items()}, frozenset(counts)
        )

    def _reached_places(self) -> Iterator[Place]:
        """Yield the places of inputs of the model."""
        waiting = [p for node in self._stepping for p in _STARTS[operator(node)](node)]
        seen = set(waiting)
        while waiting:
            place = waiting.pop()
            if place.value in self._inputs:
                yield place
                continue
            behind = [
                p for p in self._places_behind(place) if p.value is not None and p not in seen
            ]
            seen.update(behind)
            waiting += behind

    def _places_behind(self, place: Place) -> Iterator[Place]:
        value = place.value
        node = None if value is None else value.producer()
        if node is not None:
            rule = (COUNTING if place.counts else _ALONG).get(operator(node))
            if rule is not None:
                yield from rule(node, place)
            elif not place.counts:
                yield from same_axis(node, place)
        elif value is not None and isinstance(value.graph, ir.Graph):
            owner = self._owners.get(value.graph)
            if owner is not None and value in value.graph.inputs:
                yield from _place_outside(owner, value.graph.inputs.index(value), place)


def _axes(place: Place) -> Iterator[int]:
    """Yield the axes that an input is gone along; if that is not known, the free ones.

    The first one is that of a batch then, unless it is the only one.
    """
    shape = None if place.value is None else place.value.shape
    if shape is None:
        return
    free = [axis for axis, length in enumerate(shape) if not isinstance(length, int)]
    if place.at is not None:
        at = place.at + len(shape) if place.at < 0 else place.at
        yield from (axis for axis in free if axis == at)
    else:
        yield from [axis for axis in free if axis] or free


# Where a search begins.


def _of_scan(node: ir.Node) -> Iterator[Place]:
    for index, axis in _scanned_axes(node).items():
        yield Place(node.inputs[index], axis)


def _scanned_axes(node: ir.Node) -> Mapping[int, int]:
    """Return the axis along which a Scan goes, by input; negative where the rank is unknown."""
    count, first = node.attributes.get_int("num_scan_inputs", 0), _lengths(node)
    axes = list(node.attributes.get_ints("scan_input_axes", ())) or [first] * count
    axis_of = dict(enumerate(axes, len(node.inputs) - count))
    for index, axis in axis_of.items():
        value = node.inputs[index]
        if axis < 0 and value is not None and value.shape is not None:
            axis_of[index] = axis + value.shape.rank()
    return axis_of


def _lengths(node: ir.Node) -> int:
    """Return 1 for the Scan of opset 8: lengths are its first input, batches its first axis."""
    return len(node.inputs) - sum(len(body.inputs) for body in subgraphs(node))


def _of_loop(node: ir.Node) -> Iterator[Place]:
    """Yield the number of iterations, and the numbers that its condition compares."""
    if node.inputs and node.inputs[0] is not None:
        yield Place(node.inputs[0], None, counts=True)
    for body in subgraphs(node):
        yield from _compared_places(body.outputs[0] if body.outputs else None)


def _compared_places(condition: ir.Value | None) -> Iterator[Place]:
    waiting, seen = [condition], {condition}
    while waiting:
        value = waiting.pop()
        node = None if value is None else value.producer()
        if node is None:
            continue
        if operator(node) in _COMPARISONS:
            yield from (Place(v, None, counts=True) for v in node.inputs)
        elif operator(node) in _LOGIC:
            waiting += [v for v in node.inputs if v not in seen]
            seen.update(node.inputs)


def _of_recurrence(node: ir.Node) -> Iterator[Place]:
    yield Place(node.inputs[0], node.attributes.get_int("layout", 0))


_STARTS: Mapping[str, Callable[[ir.Node], Iterator[Place]]] = {
    "Scan": _of_scan,
    "Loop": _of_loop,
    "LSTM": _of_recurrence,
    "GRU": _of_recurrence,
    "RNN": _of_recurrence,
}
# operators: what the condition of a Loop is made of
_COMPARISONS = frozenset({"Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"})
# operators: and what is between that and the comparisons
_LOGIC = frozenset({"And", "Or", "Not", "Cast", "Identity", "Squeeze", "Unsqueeze", "Reshape"})


# Out of bodies.


def _place_outside(owner: ir.Node, index: int, place: Place) -> Iterator[Place]:
    """Yield what an input of a body is outside."""
    if operator(owner) == "Loop" and index > 1:
        yield Place(owner.inputs[index], place.at, place.counts)
    if operator(owner) != "Scan":
        return
    batches, at = _lengths(owner), place.at
    if at is not None and at >= 0 and not place.counts:
        axis = _scanned_axes(owner).get(index + batches)
        at += batches
        at = None if axis is not None and axis < 0 else at + (axis is not None and at >= axis)
    yield Place(owner.inputs[index + batches], at, place.counts)


def _out_of_scan(node: ir.Node, place: Place) -> Iterator[Place]:
    """Yield what a Scan goes along, for what it stacks up."""
    states = len(node.inputs) - node.attributes.get_int("num_scan_inputs", 0)
    if place.value in node.outputs[:states]:
        return
    yield from _of_scan(node)


def _out_of_loop(node: ir.Node, place: Place) -> Iterator[Place]:
    """Yield how often a Loop runs, for what it stacks up."""
    if place.value not in node.outputs[: max(0, len(node.inputs) - 2)]:
        yield from _of_loop(node)


_ALONG: Mapping[str, Rule] = {**ALONG, "Scan": _out_of_scan, "Loop": _out_of_loop}
