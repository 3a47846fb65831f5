"""The type graph: one vertex per type variable of a node, one edge per value flowing between two.

Only float32 is materialised. An edge joins two ports of one value, hence of one element type, so a
vertex of another type can neither be retyped nor be reached from one that can; leaving those out
changes no result and makes shape arithmetic free (painting.md, section 1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import networkx as nx
import onnx_ir as ir

from amp_rewrite.graph.elements import FLOAT32_TYPES
from amp_rewrite.graph.infer import Types
from amp_rewrite.graph.ports import (
    Ports,
    is_fixed,
    opset_of,
)
from amp_rewrite.graph.schemas import Schema


@dataclass(frozen=True, eq=False, slots=True)
class VertexKind:
    """What the vertices of equal calls of one operator share, so that facts are computed once.

    Attributes:
        schema: The operator's schema, or None for an opaque operator.
        opset: The opset in force.
        variables: The variables' names, in port order; more than one if a target ties them.
        type: The ONNX type string of the first variable, for example "tensor(float)".
        known: Variable -> type string, for every variable of the call whose type is known.
    """

    schema: Schema | None
    opset: int
    variables: tuple[str, ...]
    type: str
    known: Mapping[str, str]

    @property
    def fixed(self) -> bool:
        """Whether the schema fixes the type, so that no rewrite can change it."""
        return is_fixed(self.variables[0])


class Vertex:
    """One type variable of a node whose type is float32, or several that a target ties together.

    Vertices compare by identity.
    """

    __slots__ = ("kind", "node")

    def __init__(self, node: ir.Node, kind: VertexKind) -> None:
        """Make the vertex of `node` for the variables of `kind`."""
        self.node = node
        self.kind = kind

    @property
    def name(self) -> str:
        """The vertex as reports and cases spell it: "MatMul_3/T"."""
        return f"{self.node.name}/{self.kind.variables[0]}"

    def __repr__(self) -> str:
        """Return the vertex's name and operator."""
        return f"<{self.name} {self.node.op_type}>"


class NodeVertices(NamedTuple):
    """The vertices of one node, by port; None where a port is absent or not float32.

    Attributes:
        all: Every vertex of the node, once, in port order.
        inputs: One entry per actual input.
        outputs: One entry per actual output.
        ports: The variables' names by port, float32 or not.
    """

    all: tuple[Vertex, ...]
    inputs: tuple[Vertex | None, ...]
    outputs: tuple[Vertex | None, ...]
    ports: Ports


@dataclass(slots=True)
class TypeGraph:
    """The float32 dataflow of a model.

    Attributes:
        model: The model that the graph describes.
        types: The type of every value (infer.py).
        graph: Vertices and edges; an edge u -> v says that an output of u feeds an input of v, or
            that v reads a sequence into which u writes.
        handles: The edges that carry a sequence rather than a tensor; no walk follows them.
        nodes: Node -> its vertices, in execution order, subgraph nodes where their owner stands.
        producers: Value -> the vertex whose output it is; a subgraph's input belongs to its owner.
        sinks: Subgraph -> one entry per graph output: the owner's vertex that receives it, or None.
        opaque_ends: Values of sequence type that enter or leave through something opaque.
        bound: Names of main-graph values that training_info binds; they keep their types.
    """

    model: ir.Model
    types: Types
    graph: nx.DiGraph = field(default_factory=nx.DiGraph)
    handles: nx.DiGraph = field(default_factory=nx.DiGraph)
    nodes: dict[ir.Node, NodeVertices] = field(default_factory=dict)
    producers: dict[ir.Value, Vertex] = field(default_factory=dict)
    sinks: dict[ir.Graph, list[Vertex | None]] = field(default_factory=dict)
    opaque_ends: set[ir.Value] = field(default_factory=set)
    bound: frozenset[str] = frozenset()

    def vertices(self) -> Iterator[Vertex]:
        """Yield every vertex in execution order."""
        return iter(self.graph)

    def is_float32(self, value: ir.Value) -> bool:
        """Tell whether a value's element type is float32 and may be retyped."""
        return self.types.get(value) in FLOAT32_TYPES

    def opset_of(self, node: ir.Node) -> int:
        """Return the opset in force for a node of the main graph or a subgraph."""
        return opset_of(node, self.model.graph.opset_imports)
