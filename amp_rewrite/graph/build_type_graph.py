"""Build the type graph of a model: vertices in execution order, then the edges between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import networkx as nx
import onnx_ir as ir

from amp_rewrite.graph.dataflow import NodeVertices, TypeGraph, Vertex, VertexKind
from amp_rewrite.graph.elements import FLOAT32_TYPES
from amp_rewrite.graph.infer import infer_types
from amp_rewrite.graph.origin import training_names
from amp_rewrite.graph.ports import Ports, opaque_ports, ports_at
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.graph.traverse import subgraphs

Tie = Callable[[ir.Node, int, Mapping[str, str]], Sequence[frozenset[str]]]
"""(node, opset, variable -> type) -> groups of variables that a target can only retype together."""


def build_type_graph(model: ir.Model, tie: Tie | None = None) -> TypeGraph:
    """Return the type graph of a model.

    Args:
        model: The model; not modified.
        tie: Which variables a target ties together; none by default.
    """
    result = TypeGraph(model, infer_types(model), bound=training_names(model))
    builder = _Builder(result, tie)
    builder.add_graph(model.graph)
    builder.finish()
    return builder.result


def _through_sequences(handles: nx.DiGraph) -> Iterator[tuple[Vertex, Vertex]]:
    """Yield an edge from each writer of a sequence to each reader that the sequence can reach."""
    for writer in handles:
        if has(writer.node, Trait.WRITES_SEQUENCE):
            for reader in nx.descendants(handles, writer):
                if has(reader.node, Trait.READS_SEQUENCE):
                    yield writer, reader


@dataclass(frozen=True, slots=True)
class _Template:
    """The vertices of a call, before there is a node: kinds, and which kind each port has."""

    empty: NodeVertices
    kinds: tuple[VertexKind, ...]
    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]


def _indices(
    names: Sequence[str], types: Sequence[str | None], index: Mapping[str, int]
) -> tuple[int | None, ...]:
    return tuple(
        index.get(name) if type_ in FLOAT32_TYPES else None
        for name, type_ in zip(names, types, strict=True)
    )


@dataclass
class _Builder:
    """Adds nodes in execution order, then the edges that could not be known on the way."""

    result: TypeGraph
    tie: Tie | None
    edges: list[tuple[Vertex, Vertex]] = field(default_factory=list)
    handle_edges: list[tuple[Vertex, Vertex]] = field(default_factory=list)
    templates: dict[tuple[object, ...], _Template] = field(default_factory=dict)

    def add_graph(self, graph: ir.Graph) -> None:
        """Add the nodes of one graph; whoever owns it has already added its inputs' producers."""
        for node in graph:
            self._add_node(node)
        if graph is self.result.model.graph:
            self._note_sequence_ends((*graph.inputs, *graph.outputs))

    def finish(self) -> None:
        """Add the collected edges in bulk, and those that run through a sequence."""
        graph, handles = self.result.graph, self.result.handles
        graph.add_nodes_from(v for entry in self.result.nodes.values() for v in entry.all)
        graph.add_edges_from(self.edges)
        handles.add_edges_from(self.handle_edges)
        graph.add_edges_from(_through_sequences(handles))

    def _add_node(self, node: ir.Node) -> None:
        vertices = self._vertices(node)
        self.result.nodes[node] = vertices
        producers = self.result.producers
        if vertices.all:
            for value, vertex in zip(node.inputs, vertices.inputs, strict=True):
                if value is not None and vertex is not None:
                    self._feed(value, vertex)
            for value, vertex in zip(node.outputs, vertices.outputs, strict=True):
                if vertex is not None:
                    producers[value] = vertex
        if vertices.ports.schema is None:
            self._note_sequence_ends((*node.inputs, *node.outputs))
        for graph in subgraphs(node):
            self._add_subgraph(node, vertices, graph)

    def _feed(self, value: ir.Value, vertex: Vertex) -> None:
        producer = self.result.producers.get(value)
        if producer is None:
            return
        is_handle = self.result.types[value] != "tensor(float)"
        (self.handle_edges if is_handle else self.edges).append((producer, vertex))

    def _note_sequence_ends(self, values: Iterable[ir.Value | None]) -> None:
        for value in values:
            if value is not None and self.result.types.get(value, "")[:4] in ("seq(", "opti"):
                self.result.opaque_ends.add(value)

    def _vertices(self, node: ir.Node) -> NodeVertices:
        template = self._template(node)
        if not template.kinds:
            return template.empty
        made = tuple([Vertex(node, kind) for kind in template.kinds])
        return NodeVertices(
            made,
            tuple([None if i is None else made[i] for i in template.inputs]),
            tuple([None if i is None else made[i] for i in template.outputs]),
            template.empty.ports,
        )

    def _template(self, node: ir.Node) -> _Template:
        """Return the shape of a node's vertices; cached by operator and types."""
        get = self.result.types.get
        key = (
            node.domain,
            node.op_type,
            node.overload,
            tuple([None if v is None else get(v) for v in node.inputs]),
            tuple([get(v) for v in node.outputs]),
            _scan_split(node) if self._is_scan(node) else None,
        )
        found = self.templates.get(key)
        if found is None:
            found = self.templates[key] = self._make_template(node)
        return found

    def _make_template(self, node: ir.Node) -> _Template:
        ports = self._ports(node)
        types = self.result.types
        inputs = [None if v is None else types.get(v) for v in node.inputs]
        outputs = [types.get(v) for v in node.outputs]
        known: dict[str, str] = {}
        for name, type_ in zip((*ports.inputs, *ports.outputs), (*inputs, *outputs), strict=True):
            # A sequence operator's S stands for the sequence and for its elements.
            if type_ is not None and (name not in known or type_.startswith("seq(")):
                known[name] = type_
        opset = self.result.opset_of(node)
        groups = self._groups(node, opset, known)
        kinds = tuple(VertexKind(ports.schema, opset, g, known[g[0]], known) for g in groups)
        index = {name: i for i, group in enumerate(groups) for name in group}
        return _Template(
            NodeVertices((), (None,) * len(inputs), (None,) * len(outputs), ports),
            kinds,
            _indices(ports.inputs, inputs, index),
            _indices(ports.outputs, outputs, index),
        )

    def _groups(self, node: ir.Node, opset: int, known: Mapping[str, str]) -> list[tuple[str, ...]]:
        """Return the float32 variables, those that the target ties together in one group."""
        float32 = [name for name, type_ in known.items() if type_ in FLOAT32_TYPES]
        tied = self.tie(node, opset, known) if self.tie and float32 else ()
        groups: list[tuple[str, ...]] = []
        for name in float32:
            group = next((g for g in tied if name in g), frozenset((name,)))
            members = tuple(n for n in float32 if n in group)
            if members not in groups:
                groups.append(members)
        return groups

    def _ports(self, node: ir.Node) -> Ports:
        functions = self.result.model.functions
        if functions and functions.get(node.op_identifier()) is not None:
            return opaque_ports(len(node.inputs), len(node.outputs))
        ports = ports_at(node, self.result.model.graph.opset_imports)
        return _joined_scan_ports(node, ports) if self._is_scan(node) else ports

    def _is_scan(self, node: ir.Node) -> bool:
        """Tell a Scan from what else bears its name: a custom operator, a function."""
        is_call = node.op_identifier() in self.result.model.functions
        return node.op_type == "Scan" and node.domain == "" and not is_call

    def _add_subgraph(self, owner: ir.Node, vertices: NodeVertices, graph: ir.Graph) -> None:
        """Join a subgraph's inputs and outputs to its owner's variables, then add its nodes."""
        entering, leaving = _joins(owner, vertices)
        for value, vertex in zip(graph.inputs, entering, strict=False):
            if vertex is not None and self.result.is_float32(value):
                self.result.producers[value] = vertex
        self.add_graph(graph)
        sinks: list[Vertex | None] = []
        for index, value in enumerate(graph.outputs):
            vertex = leaving[index] if index < len(leaving) else None
            if not self.result.is_float32(value):
                vertex = None
            sinks.append(vertex)
            if vertex is not None:
                self._feed(value, vertex)
        self.result.sinks[graph] = sinks
        if not entering and not leaving:
            self._note_sequence_ends((*graph.inputs, *graph.outputs))


def _joined_scan_ports(node: ir.Node, ports: Ports) -> Ports:
    """Give Scan's state outputs the names of its state inputs."""
    first, end = _scan_split(node)
    states = ports.inputs[first:end][: len(ports.outputs)]
    return Ports(ports.schema, ports.inputs, (*states, *ports.outputs[len(states) :]))


def _scan_split(node: ir.Node) -> tuple[int, int]:
    """Return where Scan's states begin and end among its inputs; Scan-8 has lengths in front."""
    first = len(node.inputs) - len(node.attributes["body"].as_graph().inputs)
    return first, len(node.inputs) - node.attributes["num_scan_inputs"].as_int()


def _joins(
    owner: ir.Node, vertices: NodeVertices
) -> tuple[Sequence[Vertex | None], Sequence[Vertex | None]]:
    """Return the owner's vertices behind a subgraph's inputs and behind its outputs.

    Loop: body (iteration, condition, carried...) -> (condition, carried..., scan outputs...).
    Scan: body (states..., scan inputs...) -> (states..., scan outputs...). If: () -> (outputs...).
    Any other owner is opaque: nothing is joined and the ends keep their types.
    """
    if owner.domain != "" or vertices.ports.schema is None:
        return (), ()
    if owner.op_type == "Loop":
        carried = vertices.inputs[2:]
        return (None, None, *carried), (None, *carried, *vertices.outputs[len(carried) :])
    if owner.op_type == "Scan":
        first, end = _scan_split(owner)
        states = vertices.inputs[first:end]
        return vertices.inputs[first:], (*states, *vertices.outputs[len(states) :])
    if owner.op_type == "If":
        return (), vertices.outputs
    return (), ()
