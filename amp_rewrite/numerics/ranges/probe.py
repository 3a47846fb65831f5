"""Statistics of values inside a model, computed by the runtime: no tensors are fetched.

A probe is one float32 number, in a vector of length 1, computed next to its value. The probes of
each graph are joined into two vectors, of maxima and of sums. Those of a branch become outputs of
its If (neutral in the other branch), those of a body scan outputs of its Loop or Scan, reduced over
the iterations. So the model returns two small vectors, and needs no more memory than a run.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from amp_rewrite.graph.traits import Trait, has

MAX, SUM = "max", "sum"
_NEUTRAL = {MAX: -np.inf, SUM: 0.0}
_REDUCE = {MAX: "ReduceMax", SUM: "ReduceSum"}
_FIRST_OPSET_WITH_AXES_INPUT = {MAX: 18, SUM: 13}
_FIRST_SCAN = 9
_PREFIX = "amp-rewrite.probe"


class Vector(NamedTuple):
    """The keys of a vector's elements, and the value that holds it."""

    keys: list[Hashable]
    value: ir.Value


@dataclass
class Prober:
    """Adds probes to a model, which it changes.

    After `finish` it has `keys`: combination -> the key of each element of the output vector.
    """

    model: ir.Model
    keys: dict[str, list[Hashable]] = field(default_factory=dict[str, list[Hashable]])
    _numbers: dict[ir.Graph, dict[str, list[tuple[Hashable, ir.Value]]]] = field(
        default_factory=dict[ir.Graph, dict[str, list[tuple[Hashable, ir.Value]]]]
    )
    _constants: dict[tuple[str, float], ir.Value] = field(
        default_factory=dict[tuple[str, float], ir.Value]
    )
    _count: int = 0

    @property
    def opset(self) -> int:
        """The opset of the default domain."""
        return self.model.graph.opset_imports.get("", 1)

    def add(
        self,
        graph: ir.Graph,
        op: str,
        inputs: Sequence[ir.Value | None],
        attributes: Iterable[ir.Attr] = (),
        dtype: ir.DataType = ir.DataType.FLOAT,
    ) -> ir.Value:
        """Append a node to a graph and return its output."""
        name = self._name()
        output = ir.Value(name=name, type=ir.TensorType(dtype))
        graph.append(ir.Node("", op, inputs, attributes, outputs=[output], name=name))
        return output

    def constant(self, number: float) -> ir.Value:
        """Return a float32 scalar that every graph of the model can read."""
        return self._shared_constant("scalar", number, np.float32(number))

    def flat(self, graph: ir.Graph, value: ir.Value) -> ir.Value:
        """Return a tensor's elements as a vector: a view, not a copy."""
        shape = self._shared_constant("flat", -1, np.array([-1], np.int64))
        return self.add(graph, "Reshape", [value, shape])

    def reduce(self, graph: ir.Graph, op: str, vector: ir.Value) -> ir.Value:
        """Return a vector of length 1: the maximum, minimum or sum of a vector."""
        return self.add(graph, op, [vector], [ir.AttrInt64("keepdims", 1)])

    def probe(self, graph: ir.Graph, key: Hashable, combine: str, number: ir.Value) -> None:
        """Ask for a number of a graph, a vector of length 1, under a key."""
        self._numbers.setdefault(graph, {MAX: [], SUM: []})[combine].append((key, number))

    def finish(self) -> None:
        """Make the two vectors the only outputs of the model."""
        vectors = self._collect(self.model.graph)
        self.model.graph.outputs.clear()
        for combine, vector in vectors.items():
            self.keys[combine] = vector.keys
            self.model.graph.outputs.append(vector.value)
            vector.value.name = combine_name(combine)

    def _shared_constant(
        self, kind: str, number: float, array: np.ndarray | np.generic
    ) -> ir.Value:
        key = (kind, number)
        if key not in self._constants:
            graph = self.model.graph
            self._constants[key] = self._constant_in(graph, np.asarray(array), first=True)
        return self._constants[key]

    def _constant_in(self, graph: ir.Graph, array: np.ndarray, *, first: bool) -> ir.Value:
        tensor = ir.Tensor(array)
        name = self._name()
        output = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=tensor.shape)
        attribute = ir.AttrTensor("value", tensor)
        node = ir.Node("", "Constant", [], [attribute], outputs=[output], name=name)
        head = next(iter(graph), None)
        if first and head is not None:
            graph.insert_before(head, node)
        else:
            graph.append(node)
        return output

    def _collect(self, graph: ir.Graph) -> dict[str, Vector]:
        parts: dict[str, list[Vector]] = {MAX: [], SUM: []}
        for node in list(graph):
            if reaches_out(node, self.opset):
                is_loop = has(node, Trait.LOOPS)
                bodies = (
                    self._from_iterations(node, graph) if is_loop else self._from_branches(node)
                )
                for combine, vector in bodies:
                    parts[combine].append(vector)
        for combine, numbers in self._numbers.get(graph, {}).items():
            parts[combine] += [Vector([key], number) for key, number in numbers]
        return {c: self._join_vectors(graph, vectors) for c, vectors in parts.items() if vectors}

    def _join_vectors(self, graph: ir.Graph, vectors: list[Vector]) -> Vector:
        keys = [key for vector in vectors for key in vector.keys]
        value = self.add(graph, "Concat", [v.value for v in vectors], [ir.AttrInt64("axis", 0)])
        value.shape = ir.Shape([len(keys)])
        return Vector(keys, value)

    def _from_branches(self, node: ir.Node) -> list[tuple[str, Vector]]:
        branches = [node.attributes[n].as_graph() for n in ("then_branch", "else_branch")]
        vectors_found: list[tuple[str, Vector]] = []
        for branch in branches:
            for combine, vector in self._collect(branch).items():
                for each in branches:
                    value = vector.value
                    if each is not branch:
                        neutral = np.full(len(vector.keys), _NEUTRAL[combine], np.float32)
                        value = self._constant_in(each, neutral, first=False)
                    each.outputs.append(value)
                output = _new_output(node, self._name())
                vectors_found.append((combine, Vector(vector.keys, output)))
        return vectors_found

    def _from_iterations(self, node: ir.Node, graph: ir.Graph) -> list[tuple[str, Vector]]:
        body = node.attributes["body"].as_graph()
        vectors_found: list[tuple[str, Vector]] = []
        for combine, vector in self._collect(body).items():
            body.outputs.append(vector.value)
            for name in ("scan_output_axes", "scan_output_directions"):
                if name in node.attributes:
                    axes_before = node.attributes[name].as_ints()
                    node.attributes[name] = ir.AttrInt64s(name, [*axes_before, 0])
            stacked = _new_output(node, self._name())
            reduced = self._reduce_iterations(graph, combine, stacked)
            vectors_found.append((combine, Vector(vector.keys, reduced)))
        return vectors_found

    def _reduce_iterations(self, graph: ir.Graph, combine: str, stacked: ir.Value) -> ir.Value:
        """Reduce over the first axis, the iterations; over none of them it is the neutral value."""
        keep = ir.AttrInt64("keepdims", 0)
        if self.opset >= _FIRST_OPSET_WITH_AXES_INPUT[combine]:
            axis = self._shared_constant("axis", 0, np.array([0], np.int64))
            return self.add(graph, _REDUCE[combine], [stacked, axis], [keep])
        axes = ir.AttrInt64s("axes", [0])
        return self.add(graph, _REDUCE[combine], [stacked], [keep, axes])

    def _name(self) -> str:
        self._count += 1
        return f"{_PREFIX}.{self._count}"


def reaches_out(node: ir.Node, opset: int) -> bool:
    """Tell whether numbers inside a node can become outputs of it: not those of a SequenceMap."""
    if node.op_type == "Scan" and opset < _FIRST_SCAN:
        return False
    return has(node, Trait.SUBGRAPHS) and not has(node, Trait.OPAQUE)


def combine_name(combine: str) -> str:
    """Return the name of the output vector of a combination."""
    return f"{_PREFIX}.{combine}"


def _new_output(node: ir.Node, name: str) -> ir.Value:
    node.resize_outputs(len(node.outputs) + 1)
    value = node.outputs[-1]
    value.name = name
    value.type = ir.TensorType(ir.DataType.FLOAT)
    return value
