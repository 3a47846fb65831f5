"""Build the type graph of a model: vertices in execution order, then the edges between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np

from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.graph.dataflow import Call, TypeGraph, VertexKind
from amp_rewrite.graph.elements import retypable
from amp_rewrite.graph.flat import ABSENT, Array, FlatGraph, Operator
from amp_rewrite.graph.infer import FlatTypes, types_of
from amp_rewrite.graph.ports import Ports, opaque_ports
from amp_rewrite.graph.traits import Trait

Tie = Callable[[Operator, int, Mapping[str, str]], Sequence[frozenset[str]]]
"""(operator, opset, variable -> type) -> groups of variables that a target retypes together."""

_TENSOR = "tensor("
_ENDS = tuple[Sequence[int], Sequence[int]]


def build_type_graph(
    model: FlatGraph,
    tie: Tie | None = None,
    types: FlatTypes | None = None,
    bases: tuple[DType, ...] = (FLOAT32,),
) -> TypeGraph:
    """Return the type graph of a model, whose Casts that change nothing become Identities.

    `types` are inferred if they are not known, as those of a function's body are.
    """
    if types is None:
        types = types_of(model)
        model.settle_casts(types)
    calls, call = _Calls(model, types, tie, retypable(*bases)).of_all_nodes()
    graph = _with_vertices(model, types, calls, np.array(call, np.int64), bases)
    _add_ends(graph)
    _add_edges(graph)
    graph.opaque_ends = frozenset(_opaque_ends(graph))
    return graph


class _Calls:
    """The distinct calls of operators: by operator, by the types of inputs and outputs."""

    def __init__(
        self, flat: FlatGraph, types: FlatTypes, tie: Tie | None, retyped: frozenset[str]
    ) -> None:
        self._flat, self._types, self._tie, self._retyped = flat, types, tie, retyped

    def of_all_nodes(self) -> tuple[list[Call], list[int]]:
        """Return the calls, and by node the number of its call."""
        flat, types = self._flat, self._types
        first, behind, scans = flat.input_start, flat.output_start, set(flat.nodes_of("Scan"))
        read, outputs_read = flat.inputs, flat.outputs
        seen: dict[tuple[object, ...], int] = {}
        calls: list[Call] = []
        numbers: list[int] = []
        for node, called in enumerate(flat.operator):
            inputs = [None if v < 0 else types[v] for v in read[first[node] : first[node + 1]]]
            outputs = [types[v] for v in outputs_read[behind[node] : behind[node + 1]]]
            split = scan_split(flat, node) if node in scans else None
            key = (called, tuple(inputs), tuple(outputs), split)
            number = seen.get(key)
            if number is None:
                number = seen[key] = len(calls)
                calls.append(self._call(node, inputs, outputs, split))
            numbers.append(number)
        return calls, numbers

    def _call(
        self,
        node: int,
        inputs: Sequence[str | None],
        outputs: Sequence[str | None],
        split: tuple[int, int] | None,
    ) -> Call:
        flat, called, opset = self._flat, self._flat.called(node), self._flat.opset_of(node)
        if flat.is_call(node):
            ports = opaque_ports(len(inputs), len(outputs))
        else:
            ports = flat.ports_of(node, inputs)
        if split is not None:
            states = ports.inputs[split[0] : split[1]][: len(ports.outputs)]
            ports = Ports(ports.schema, ports.inputs, (*states, *ports.outputs[len(states) :]))
        type_of: dict[str, str] = {}
        for name, type_ in zip((*ports.inputs, *ports.outputs), (*inputs, *outputs), strict=True):
            # A sequence operator's S stands for the sequence and for its elements.
            if type_ is not None and (name not in type_of or type_.startswith("seq(")):
                type_of[name] = type_
        groups = self._groups(called, opset, type_of)
        kinds = tuple(
            VertexKind(called, ports.schema, opset, group, type_of[group[0]], type_of)
            for group in groups
        )
        index = {name: i for i, group in enumerate(groups) for name in group}
        return Call(
            ports,
            kinds,
            self._indices(ports.inputs, inputs, index),
            self._indices(ports.outputs, outputs, index),
        )

    def _groups(
        self, called: Operator, opset: int, type_of: Mapping[str, str]
    ) -> list[tuple[str, ...]]:
        """Return the variables to retype, those that the target ties together in one group."""
        retyped = [name for name, type_ in type_of.items() if type_ in self._retyped]
        tied = self._tie(called, opset, type_of) if self._tie and retyped else ()
        groups: list[tuple[str, ...]] = []
        for name in retyped:
            group = next((g for g in tied if name in g), frozenset((name,)))
            members = tuple(n for n in retyped if n in group)
            if members not in groups:
                groups.append(members)
        return groups

    def _indices(
        self, names: Sequence[str], types: Sequence[str | None], index: Mapping[str, int]
    ) -> tuple[int, ...]:
        return tuple(
            index.get(name, ABSENT) if type_ in self._retyped else ABSENT
            for name, type_ in zip(names, types, strict=True)
        )


def _with_vertices(
    flat: FlatGraph, types: FlatTypes, calls: list[Call], call: Array, bases: tuple[DType, ...]
) -> TypeGraph:
    """Number the vertices: those of a node follow those of the node before."""
    n_kinds = np.array([len(c.kinds) for c in calls], np.int64)
    counts, offsets = n_kinds[call], np.cumsum(n_kinds) - n_kinds
    first = np.concatenate(([0], np.cumsum(counts)))
    node = np.repeat(np.arange(flat.n_nodes), counts)
    kinds = [kind for c in calls for kind in c.kinds]
    reads = _at_ports(call, [c.reads for c in calls], first)
    writes = _at_ports(call, [c.writes for c in calls], first)
    source = np.full(flat.n_values, ABSENT)
    source[np.array(flat.outputs, np.int64)] = writes
    return TypeGraph(
        flat,
        types,
        calls,
        call,
        first,
        node,
        kinds,
        kind=_entries_of_calls(call, [range(len(c.kinds)) for c in calls]) + offsets[call][node],
        reads=reads.tolist(),
        writes=writes.tolist(),
        source=source.tolist(),
        edges=np.empty((0, 2), np.int64),
        bases=bases,
    )


def _entries_of_calls(call: Array, entries: Sequence[Sequence[int]]) -> Array:
    """Return the entries of each node's call, node after node."""
    lengths = np.array([len(e) for e in entries], np.int64)
    table = np.array(list(chain.from_iterable(entries)), np.int64)
    begin = np.cumsum(lengths) - lengths
    counts = lengths[call]
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return table[np.repeat(begin[call], counts) + within]


def _at_ports(call: Array, entries: Sequence[Sequence[int]], first: Array) -> Array:
    """Return the vertex at each port of each node, from which of its call's vertices it is."""
    index = _entries_of_calls(call, entries)
    owner = np.repeat(first[:-1], np.array([len(e) for e in entries], np.int64)[call])
    return np.where(index == ABSENT, ABSENT, owner + index)


def scan_split(flat: FlatGraph, node: int) -> tuple[int, int]:
    """Return where Scan's states begin and end among its inputs; Scan-8 has lengths in front."""
    (body,) = flat.bodies_in(node)
    n_inputs = len(flat.inputs_of(node))
    first = n_inputs - len(flat.bodies[body].inputs)
    return first, n_inputs - flat.attributes(node)["num_scan_inputs"].value


def _joins(graph: TypeGraph, owner: int) -> _ENDS:
    """Return the owner's vertices behind a subgraph's inputs and behind its outputs.

    Loop: body (iteration, condition, carried...) -> (condition, carried..., scan outputs...).
    Scan: body (states..., scan inputs...) -> (states..., scan outputs...). If: () -> (outputs...).
    Any other owner is opaque: nothing is joined and the ends keep their types.
    """
    flat, called = graph.flat, graph.flat.called(owner)
    if called.domain != "" or graph.ports_of(owner).schema is None:
        return (), ()
    inputs = graph.reads[flat.input_start[owner] : flat.input_start[owner + 1]]
    outputs = graph.writes[flat.output_start[owner] : flat.output_start[owner + 1]]
    match called.op_type:
        case "Loop":
            carried = inputs[2:]
            return (ABSENT, ABSENT, *carried), (ABSENT, *carried, *outputs[len(carried) :])
        case "Scan":
            first, end = scan_split(flat, owner)
            states = inputs[first:end]
            return inputs[first:], (*states, *outputs[len(states) :])
        case "If":
            return (), outputs
        case _:
            return (), ()


def _add_ends(graph: TypeGraph) -> None:
    """Join the inputs and outputs of subgraphs to the variables of their owners."""
    for number in graph.flat.finished:
        body = graph.flat.bodies[number]
        entering, leaving = _joins(graph, body.owner)
        for value, vertex in zip(body.inputs, entering, strict=False):
            if vertex != ABSENT and graph.is_retyped(value):
                graph.source[value] = vertex
        graph.sinks[number] = [
            leaving[i] if i < len(leaving) and graph.is_retyped(value) else ABSENT
            for i, value in enumerate(body.outputs)
        ]


def _add_edges(graph: TypeGraph) -> None:
    """Join what makes a value to what reads it, and the ends of what runs through a sequence."""
    fed = np.concatenate((_fed_by_nodes(graph), _fed_by_bodies(graph)))
    _, source, target, value = fed[np.argsort(fed[:, 0], kind="stable")].T
    carries = np.array([t is None or not t.startswith(_TENSOR) for t in graph.types], np.bool_)[
        value
    ]
    pairs = np.stack((source, target), axis=1)
    graph.handles = list(dict.fromkeys((a, b) for a, b in pairs[carries].tolist()))
    through = np.array(list(_through_sequences(graph)), np.int64).reshape(-1, 2)
    edges = np.concatenate((pairs[~carries], through))
    _, kept = np.unique(edges[:, 0] * len(graph) + edges[:, 1], return_index=True)
    graph.edges = edges[np.sort(kept)]


def _fed_by_nodes(graph: TypeGraph) -> Array:
    """Return (where, source, reader, value) for each input of a node that a vertex feeds."""
    value, reader = np.array(graph.flat.inputs, np.int64), np.array(graph.reads, np.int64)
    source = np.array([*graph.source, ABSENT], np.int64)[value]  # ABSENT is the last one
    where = 2 * np.arange(len(value)) + 1
    fed = np.stack((where, source, reader, value), axis=1)
    return fed[(source != ABSENT) & (reader != ABSENT)]


def _fed_by_bodies(graph: TypeGraph) -> Array:
    """Return the same for each output of a subgraph: it stands behind what is inside."""
    flat = graph.flat
    fed = [
        (2 * flat.input_start[flat.bodies[number].end], graph.source[value], vertex, value)
        for number, vertices in graph.sinks.items()
        for value, vertex in zip(flat.bodies[number].outputs, vertices, strict=True)
        if vertex != ABSENT and graph.source[value] != ABSENT
    ]
    return np.array(fed, np.int64).reshape(-1, 4)


def _through_sequences(graph: TypeGraph) -> Iterator[tuple[int, int]]:
    """Yield an edge from each writer of a sequence to each reader that the sequence can reach."""
    if not graph.handles:
        return
    import networkx as nx

    writes, reads = graph.having(Trait.WRITES_SEQUENCE), graph.having(Trait.READS_SEQUENCE)
    handles = nx.DiGraph(graph.handles)
    for writer in handles:
        if writes[writer]:
            yield from ((writer, v) for v in sorted(nx.descendants(handles, writer)) if reads[v])


def _opaque_ends(graph: TypeGraph) -> Iterator[int]:
    """Yield the sequences at the ends of the model, of opaque operators, and of their subgraphs."""
    flat, types = graph.flat, graph.types
    containers = {v for v, t in enumerate(types) if t is not None and t[:4] in ("seq(", "opti")}
    if not containers:
        return
    opaque = [n for n in range(flat.n_nodes) if graph.ports_of(n).schema is None]
    ends: list[Iterable[int]] = [flat.main.inputs, flat.main.outputs]
    ends += [values for n in opaque for values in (flat.inputs_of(n), flat.outputs_of(n))]
    for number in flat.finished:
        body = flat.bodies[number]
        if not any(_joins(graph, body.owner)):
            ends += [body.inputs, body.outputs]
    yield from containers.intersection(chain.from_iterable(ends))
