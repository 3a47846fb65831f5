"""The groups of a model that its target fuses, as the painting sees them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from amp_rewrite.dtypes import DType
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT, MAIN
from amp_rewrite.kernels.fusions import TargetFusion
from amp_rewrite.values.patterns.find_groups import Group, find_groups
from amp_rewrite.values.patterns.library import PATTERNS
from amp_rewrite.values.patterns.plain_view import PlainView


@dataclass(frozen=True, slots=True)
class FusedGroup:
    """A group that the target computes as one operator.

    Attributes:
        core: The vertices of the nodes without the tail.
        results: Those of the core that make a value; the exponent of a Pow, for example, is none.
        inner: The values that are made and read inside.
        inputs: Its input, and what it reads that changes nothing of it.
        makers: The vertices that make its input.
        rivals: The vertices outside the group that read its input, each with the value read.
        ends: The names of its input that are outputs of the main graph.
        is_local: Whether the input is made, or enters, where the group stands.
    """

    group: Group
    fusion: TargetFusion
    core: tuple[int, ...]
    results: tuple[int, ...]
    tail: tuple[int, ...]
    inner: tuple[int, ...]
    inputs: tuple[int, ...]
    makers: tuple[int, ...]
    rivals: tuple[tuple[int, int], ...]
    ends: tuple[int, ...]
    is_local: bool
    words: str

    @property
    def surroundings(self) -> tuple[int, ...]:
        """The vertices on which the type of its operator's input and result depend."""
        return (*self.makers, *(vertex for vertex, _ in self.rivals), *self.tail)


def fused_groups(
    type_graph: TypeGraph, fusions: Mapping[str, TargetFusion], low: DType
) -> tuple[FusedGroup, ...]:
    """Return the groups of a model that a runtime with these fusions fuses, in 16 bits or not."""
    patterns = [pattern for pattern in PATTERNS if pattern.name in fusions]
    groups = find_groups(type_graph, patterns, low)
    view = PlainView(type_graph) if groups else None
    return tuple(_fused(view, group, fusions[group.name]) for group in groups if view is not None)


def _fused(view: PlainView, group: Group, fusion: TargetFusion) -> FusedGroup:
    graph, flat = view.type_graph, view.type_graph.flat
    source = group.values["x"]
    inside = frozenset(group.nodes)
    slots = [slot for name in view.names_of(source) for slot in flat.uses(name)]
    read = (flat.inputs[slot] for slot in slots if flat.reader(slot) in inside)
    inputs = dict.fromkeys((source, *read))
    core = [n for n in group.nodes if n not in group.tail]
    results = [v for n in core for v in flat.outputs_of(n)]
    return FusedGroup(
        group,
        fusion,
        core=tuple(v for n in core for v in graph.vertices_of(n)),
        results=tuple(graph.source[v] for v in results if graph.source[v] != ABSENT),
        tail=tuple(v for n in group.nodes if n in group.tail for v in graph.vertices_of(n)),
        inner=tuple(v for n in group.nodes[:-1] for v in flat.outputs_of(n)),
        inputs=tuple(inputs),
        makers=tuple(graph.source[value] for value in inputs if graph.source[value] != ABSENT),
        rivals=tuple(_rivals(view, source, [s for s in slots if flat.reader(s) not in inside])),
        ends=tuple(v for v in view.names_of(source) if v in flat.main.outputs),
        is_local=flat.home[source] == flat.body_of[group.nodes[0]],
        words=group.words(flat.node_names),
    )


def _rivals(view: PlainView, source: int, slots: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the vertices that read a value at some positions, or receive it from a subgraph."""
    graph, flat = view.type_graph, view.type_graph.flat
    for slot in slots:
        if graph.reads[slot] != ABSENT and flat.reader(slot) not in view.dropped:
            yield graph.reads[slot], flat.inputs[slot]
    for name in view.names_of(source):
        home = flat.home[name]
        if home == MAIN or not flat.is_output(name):
            continue
        for output, sink in zip(flat.bodies[home].outputs, graph.sinks[home], strict=True):
            if output == name and sink != ABSENT:
                yield sink, name
