"""Where a 16-bit model rounds, and by how much: nodes that compute the errors of single roundings.

A 16-bit node rounds its result, of 16-bit constants and sums that its kernel may keep in 16 bits
too; a float32 value is rounded where 16-bit nodes read it. What only moves 16-bit numbers rounds
nothing. The errors of values in branches and loops cannot be read from outside: there each value y
becomes y + s e, with e its error and s a number that is 0, and the gradient of s is the sum of
gradient times error over all runs of the body.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from amp_rewrite import targets
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.graph.added import AddedNames
from amp_rewrite.graph.constants import constant_tensor
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.io.read import tensor_of
from amp_rewrite.graph.rounding import to_low
from amp_rewrite.graph.traits import operator
from amp_rewrite.graph.traverse import graphs_in, subgraphs
from amp_rewrite.numerics.emulate.low_sums import accumulates_low, accumulation, kept_low
from amp_rewrite.numerics.emulate.model import is_exact
from amp_rewrite.numerics.repaint.repaint import Repainter

CAST, COMPUTED = "cast", "computed"


class Rounding(NamedTuple):
    """One place where a 16-bit model rounds.

    Attributes:
        value: The number of the value, in the painter's model.
        kind: "cast": the float32 value is rounded for 16-bit readers. "computed": a 16-bit node
            rounds its result, and the constants that it reads.
    """

    value: int
    kind: str


class Errors:
    """Adds to a prepared copy of a painter's model what computes the errors of its roundings.

    Attributes:
        values: Name -> float32 value of the main graph.
        inner: Name -> float32 value of a branch or a loop's body.
        roundings: Rounding -> its error, r(y) - y, of the shape of y: of values in `values`.
        probes: The numbers s, one for each of `probed`; an input fed with zeros, None without any.
        probed: The roundings of values in `inner`, one each.
    """

    def __init__(self, painter: Repainter, model: ir.Model, builder: Builder) -> None:
        """Find the values by their names, which preparing keeps."""
        self._painter, self._model, self._b = painter, model, builder
        main, *bodies = graphs_in(model.graph)
        self.values = _float32_values(main)
        counted = Counter(v.name for body in bodies for v in _values(body))
        self.inner = {
            name: value
            for body in bodies
            for name, value in _float32_values(body).items()
            if counted[name] == 1 and name not in self.values and value.producer() is not None
        }
        self._all = {v.name or "": v for v in _values(main)}
        self._opset = model.graph.opset_imports.get("", 0)
        target = targets.find(painter.options.chosen_target)
        self._sums = kept_low(target, painter.low, self._opset)
        self._names = AddedNames.of(model.graph)
        self._makers = {
            v: i
            for i in range(len(painter.nodes))
            for v in painter.flat.outputs_of(i)
            if v != ABSENT
        }
        self.roundings: dict[Rounding, ir.Value] = {}
        self.probes: ir.Value | None = None
        self.probed: list[Rounding] = []

    def measured(self) -> tuple[list[int], list[int]]:
        """Return the float32 values that may be rounded: of the main graph, and of bodies."""
        flat, graph = self._painter.flat, self._painter.type_graph
        named = [
            (number, name)
            for number, name in enumerate(flat.value_names)
            if name and graph.is_float32(number) and constant_tensor(graph, number) is None
        ]
        outer = [number for number, name in named if name in self.values]
        return outer, [number for number, name in named if name in self.inner]

    def add(self, number: int, b: Builder) -> None:
        """Add the errors of a value of the main graph; what only moves another has its error."""
        moved = Rounding(self._moved(number), CAST)
        if moved in self.roundings:
            self.roundings[Rounding(number, CAST)] = self.roundings[moved]
            return
        value = self.values[self._painter.flat.value_names[number]]
        self.roundings |= {
            Rounding(number, kind): error for kind, error in self._errors(number, value, b)
        }

    def probe(self, numbers: list[int]) -> None:
        """Let values in bodies depend on the probes."""
        if not numbers:
            return
        b, names = self._b, self._painter.flat.value_names
        places = [(n, kind) for n in numbers for kind in self._kinds(n)]
        shape = ir.Shape([len(places)])
        name = b.free_name("budget/probes")
        self.probes = ir.Value(name=name, type=ir.TensorType(FLOAT32.ir), shape=shape)
        self._model.graph.inputs.append(self.probes)
        start = len(b.added)
        parts = b.split(self.probes, [1] * len(places), 0, len(places))
        scalars = dict(zip(places, [b.squeeze(part, [0]) for part in parts], strict=True))
        first = next(n for n in self._model.graph if n not in set(b.added[start:]))
        added = b.added[start:]
        self._model.graph.remove(added)
        self._model.graph.insert_before(first, added)
        for number in numbers:
            value = self.inner[names[number]]
            producer = value.producer()
            assert producer is not None
            assert isinstance(producer.graph, ir.Graph)
            body = producer.graph
            uses, ends = tuple(value.uses()), [k for k, v in enumerate(body.outputs) if v is value]
            inner = b.child(body)
            moved = value
            for kind, error in self._errors(number, value, inner):
                moved = inner.add(moved, inner.mul(scalars[number, kind], error))
                self.probed.append(Rounding(number, kind))
            moved.type, moved.shape = value.type, value.shape
            for user, index in uses:
                user.replace_input_with(index, moved)
            for k in ends:
                body.outputs[k] = moved
            fresh = inner.added
            body.remove(fresh)
            body.insert_after(producer, fresh)

    def _moved(self, number: int) -> int:
        """Return the value of which this one is a copy or a part, and that nothing else reads."""
        flat, graph, maker = self._painter.flat, self._painter.type_graph, self._makers.get(number)
        if maker is None or not is_exact(self._painter.nodes[maker]):
            return ABSENT
        read = [v for v in flat.inputs_of(maker) if v != ABSENT and graph.is_float32(v)]
        has_body = next(subgraphs(self._painter.nodes[maker]), None) is not None
        if len(read) != 1 or has_body or self._readers[read[0]] > 1:
            return ABSENT
        return read[0]

    @cached_property
    def _readers(self) -> Counter[int]:
        """By value, how often nodes read it, and whether it is an output."""
        flat = self._painter.flat
        return Counter([*map(int, flat.inputs), *flat.main.outputs])

    def _kinds(self, number: int) -> list[str]:
        maker = self._makers.get(number)
        if maker is None:
            return [CAST]
        return [CAST] if is_exact(self._painter.nodes[maker]) else [CAST, COMPUTED]

    def _errors(self, number: int, value: ir.Value, b: Builder) -> list[tuple[str, ir.Value]]:
        """Return the error of each kind of rounding of a value."""
        cast = self._error(value, value, b)
        maker = self._makers.get(number)
        if maker is None:
            return [(CAST, cast)]
        exact = is_exact(self._painter.nodes[maker])
        twin = self._twin(maker, value, b)
        if twin is None:
            return [(CAST, cast)] if exact else [(CAST, cast), (COMPUTED, cast)]
        computed = b.sub(twin, value) if exact else self._error(twin, value, b)
        return [(CAST, cast), (COMPUTED, computed)]

    def _error(self, rounded: ir.Value, value: ir.Value, b: Builder) -> ir.Value:
        """Return r(rounded) - value; what overflows counts as the largest number."""
        low = self._painter.low
        ends = (b.constant(np.float32(-low.max)), b.constant(np.float32(low.max)))
        clipped = b.op("Clip", rounded, *ends)
        return b.sub(b.cast(b.cast(clipped, low.ir), FLOAT32.ir), value)

    def _prepared(self, maker: int, result: ir.Value) -> ir.Node | None:
        """Return the node that makes a result, in the version of the model's opset."""
        node, made = self._painter.nodes[maker], result.producer()
        if made is not None and operator(made) == operator(node):
            return made
        given = self._painter.model.graph.opset_imports.get("", self._opset)
        return node if given == self._opset else None

    def _twin(self, maker: int, like: ir.Value, b: Builder) -> ir.Value | None:
        """Return what a node computes with 16-bit constants and sums; None if that is no other."""
        node, flat = self._prepared(maker, like), self._painter.flat
        graph = self._painter.type_graph
        if node is None or next(subgraphs(node), None) is not None:
            return None
        if b.graph is not self._model.graph:
            return None
        inputs, is_other = list[ir.Value | None](), False
        for port, v in enumerate(flat.inputs_of(maker)):
            tensor = None
            if v != ABSENT and graph.reads[flat.input_start[maker] + port] != ABSENT:
                tensor = constant_tensor(graph, v)
            if tensor is not None:
                given = np.asarray(tensor_of(tensor).numpy())
                rounded = to_low(given, self._painter.low).astype(np.float32)
                is_other |= not np.array_equal(given, rounded, equal_nan=True)
                inputs.append(b.constant(rounded))
                continue
            held = None if v == ABSENT else self._all.get(flat.value_names[v])
            if held is None and v != ABSENT:
                return None  # preparing has replaced what the node reads
            inputs.append(held)
        inputs += node.inputs[len(inputs) :]  # a newer version has inputs for attributes
        copy = ir.Node(
            node.domain,
            node.op_type,
            inputs,
            list(node.attributes.values()),
            overload=node.overload,
            outputs=[ir.Value(name=b.free_name("budget/twin")) for _ in node.outputs],
            name=b.free_name("budget/twin"),
        )
        adds_low = accumulates_low(copy, self._sums)
        if not (is_other or adds_low):
            return None
        nodes, result = [copy], copy.outputs[[v.name for v in node.outputs].index(like.name)]
        if adds_low:
            nodes, result = accumulation(
                copy, self._painter.low, self._opset, self._names, self._sums
            )
        b.graph.extend(nodes)
        result.type, result.shape = like.type, like.shape
        return result


def _float32_values(graph: ir.Graph) -> dict[str, ir.Value]:
    return {v.name: v for v in _values(graph) if is_float32(v) and v.name}


def is_float32(value: ir.Value) -> bool:
    """Tell whether a value is a float32 tensor: a sequence of such has their element type."""
    return value.dtype == FLOAT32.ir and isinstance(value.type, ir.TensorType)


def _values(graph: ir.Graph) -> list[ir.Value]:
    """Return the values of a graph, without those inside its nodes."""
    outputs = (value for node in graph for value in node.outputs)
    return list(dict.fromkeys((*graph.inputs, *graph.initializers.values(), *outputs)))
