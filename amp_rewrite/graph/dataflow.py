"""The type graph: one vertex per type variable of a node, one edge per value between two of them.

Only types to retype have vertices: float32, or others where a model becomes float32 (`bases`).
An edge joins two ports of one type, so leaving other types out changes no result (painting.md, 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.graph.elements import FLOAT32_TYPES, element, retypable
from amp_rewrite.graph.flat import Array, FlatGraph, Operator
from amp_rewrite.graph.infer import FlatTypes
from amp_rewrite.graph.ports import Ports, is_fixed
from amp_rewrite.graph.schemas import Schema
from amp_rewrite.graph.traits import Trait, has, operator


@dataclass(frozen=True, eq=False, slots=True)
class VertexKind:
    """Facts that the vertices of equal calls of an operator share, computed once.

    Attributes:
        variables: The variables' names, in port order; more than one if a target ties them.
    """

    operator: Operator
    schema: Schema | None
    opset: int
    variables: tuple[str, ...]
    type: str
    known: Mapping[str, str]

    @property
    def fixed(self) -> bool:
        """Whether the schema fixes the type, so that no rewrite can change it."""
        return is_fixed(self.variables[0])


@dataclass(frozen=True, eq=False, slots=True)
class Call:
    """Facts that equal calls of one operator share.

    Attributes:
        reads: By input, which of the vertices reads there; ABSENT for none.
        writes: By output, which of them writes there.
    """

    ports: Ports
    kinds: tuple[VertexKind, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]


class Adjacency:
    """The neighbours of every vertex in one direction, in the order in which edges were added."""

    def __init__(self, n_vertices: int, of: Array, neighbours: Array) -> None:
        """Sort edges, given as two columns, by their vertex."""
        order = np.argsort(of, kind="stable")
        counts = np.bincount(of, minlength=n_vertices)
        self._start: list[int] = [0, *np.cumsum(counts).tolist()]
        self._neighbours: list[int] = neighbours[order].tolist()

    def __call__(self, vertex: int) -> list[int]:
        """Return the neighbours of a vertex."""
        return self._neighbours[self._start[vertex] : self._start[vertex + 1]]


@dataclass
class TypeGraph:
    """The float32 dataflow of a model.

    Attributes:
        first: By node, its first vertex; one more entry for the end.
        reads: By position in `flat.inputs`, the vertex that reads there, or ABSENT.
        writes: By position in `flat.outputs`, the vertex that writes there, or ABSENT.
        source: By value, the vertex whose output it is; a subgraph's input belongs to its owner.
        edges: Two columns: an output of the first vertex feeds an input of the second, or the
            second reads a sequence into which the first writes. No edge is there twice.
        handles: The edges that carry a sequence rather than a tensor; no walk follows them.
        sinks: Subgraph -> for each of its outputs the owner's vertex that receives it, or ABSENT.
        opaque_ends: Values of sequence type that enter or leave through something opaque.
    """

    flat: FlatGraph
    types: FlatTypes
    calls: list[Call]
    call: Array
    first: Array
    node: Array
    kinds: list[VertexKind]
    kind: Array
    reads: list[int]
    writes: list[int]
    source: list[int]
    edges: Array
    handles: list[tuple[int, int]] = field(default_factory=list)
    sinks: dict[int, list[int]] = field(default_factory=dict)
    opaque_ends: frozenset[int] = frozenset()
    bases: tuple[DType, ...] = (FLOAT32,)

    def __len__(self) -> int:
        """Return how many vertices there are."""
        return len(self.node)

    @cached_property
    def nodes(self) -> list[int]:
        """By vertex, its node."""
        return self.node.tolist()

    @cached_property
    def successors(self) -> Adjacency:
        """The vertices that a vertex feeds."""
        return Adjacency(len(self), self.edges[:, 0], self.edges[:, 1])

    @cached_property
    def predecessors(self) -> Adjacency:
        """The vertices that feed a vertex."""
        return Adjacency(len(self), self.edges[:, 1], self.edges[:, 0])

    def kind_of(self, vertex: int) -> VertexKind:
        """Return what a vertex shares with those of equal calls."""
        return self.kinds[self.kind[vertex]]

    def operator_of(self, vertex: int) -> Operator:
        """Return the operator of a vertex's node."""
        return self.flat.called(self.nodes[vertex])

    def ports_of(self, node: int) -> Ports:
        """Return the variables of a node."""
        return self.calls[self.call[node]].ports

    def vertices_of(self, node: int) -> range:
        """Return the vertices of a node, in port order."""
        return range(int(self.first[node]), int(self.first[node + 1]))

    def name(self, vertex: int) -> str:
        """Return a vertex as reports and cases spell it: "MatMul_3/T"."""
        return f"{self.node_name(vertex)}/{self.kind_of(vertex).variables[0]}"

    def node_name(self, vertex: int) -> str:
        """Return the name of a vertex's node."""
        return self.flat.node_names[self.nodes[vertex]]

    def is_float32(self, value: int) -> bool:
        """Tell whether a value's element type is float32 and may be retyped."""
        return self.types[value] in FLOAT32_TYPES

    def is_retyped(self, value: int) -> bool:
        """Tell whether a value's element type is one of those whose variables are vertices."""
        return self.types[value] in self._retyped_variables

    def base(self, value: int) -> DType:
        """Return the element type that a value has; it is one of `bases`."""
        number = element(self.types[value] or "")
        return next(base for base in self.bases if base.number == number)

    @cached_property
    def _retyped_variables(self) -> frozenset[str]:
        return retypable(*self.bases)

    def readers(self, value: int) -> list[int]:
        """Return the vertices that read a value, once for each input; ABSENT for other types."""
        reads = self.reads
        return [reads[slot] for slot in self.flat.uses(value)]

    def values_of(self, vertex: int) -> Iterator[int]:
        """Yield what the node of a vertex reads and writes for it, once for each time."""
        flat, node = self.flat, self.nodes[vertex]
        for slot in range(flat.input_start[node], flat.input_start[node + 1]):
            if self.reads[slot] == vertex:
                yield flat.inputs[slot]
        for slot in range(flat.output_start[node], flat.output_start[node + 1]):
            if self.writes[slot] == vertex:
                yield flat.outputs[slot]

    def where(self, holds: Callable[[VertexKind], bool]) -> Array:
        """Return a mask of the vertices whose kind meets a condition."""
        return np.array([holds(kind) for kind in self.kinds], np.bool_)[self.kind]

    def having(self, *traits: Trait) -> Array:
        """Return a mask of the vertices whose operator has at least one of some traits."""
        return self.where(lambda kind: has(kind.operator, *traits))

    def called(self, operators: Iterable[str]) -> Array:
        """Return a mask of the vertices of some operators, by their keys in traits.py."""
        wanted = frozenset(operators)
        return self.where(lambda kind: operator(kind.operator) in wanted)

    def mask(self, vertices: Iterable[int]) -> Array:
        """Return a mask of these vertices."""
        chosen = np.zeros(len(self), np.bool_)
        chosen[list(vertices)] = True
        return chosen


def vertices_in(mask: Array) -> Sequence[int]:
    """Return the numbers that a mask holds, in order."""
    return np.flatnonzero(mask).tolist()
