"""Names of what a rewrite adds: deterministic, unique, and recognisable."""

from __future__ import annotations

from amp_rewrite.dtypes import DType
from amp_rewrite.graph.added import SUFFIX
from amp_rewrite.graph.dataflow import TypeGraph


class Names:
    """The names in use in a model, and the next free ones."""

    def __init__(self, type_graph: TypeGraph) -> None:
        """Collect the names of every node and value of the main graph and its subgraphs."""
        used: set[str | None] = set()
        for graph in (type_graph.model.graph, *type_graph.sinks):
            used.update(v.name for v in graph.inputs)
            used.update(graph.initializers)
        used.update([node.name for node in type_graph.nodes])
        used.update([v.name for node in type_graph.nodes for v in node.outputs])
        self._used = used

    def free(self, value: str, to: DType) -> str:
        """Return `<value>-CastToFp16-<n>-AutoMixedPrecision` with the first free n; take it."""
        return self._first(f"{value}-CastTo{to.label}")

    def internal(self, value: str, dtype: DType) -> str:
        """Return a name for a value that gives its own name to the cast behind it; take it."""
        return self._first(f"{value}-{dtype.label}")

    def _first(self, stem: str) -> str:
        n = 0
        while (name := f"{stem}-{n}{SUFFIX}") in self._used:
            n += 1
        self._used.add(name)
        return name
