"""Names of what emulation adds to a copy of a model."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.dtypes import DType
from amp_rewrite.graph.added import SUFFIX


class EmulatedNames:
    """The names in use in a model, and the next free ones."""

    def __init__(self, model: ir.Model) -> None:
        """Collect the names of all nodes and values of the main graph and its subgraphs."""
        self._used: set[str] = set()
        self._next: dict[str, int] = {}
        for graph in (model.graph, *model.graph.subgraphs()):
            self._used.update(v.name or "" for v in graph.inputs)
            self._used.update(graph.initializers)
        for node in model.graph.all_nodes():
            self._used.add(node.name or "")
            self._used.update(v.name or "" for v in node.outputs)

    def cast(self, value: str, to: DType) -> str:
        """Return a name for a value cast to a type; take it."""
        return self._first(f"{value}-CastTo{to.label}")

    def inner(self, value: str, dtype: DType) -> str:
        """Return a name for a value that gives its own name to the cast behind it; take it."""
        return self._first(f"{value}-{dtype.label}")

    def part(self, value: str, op: str) -> str:
        """Return a name for a node, or a value inside, that makes a value; take it."""
        return self._first(f"{value}-{op}")

    def _first(self, stem: str) -> str:
        n = self._next.get(stem, 0)
        while (name := f"{stem}-{n}{SUFFIX}") in self._used:
            n += 1
        self._next[stem] = n + 1
        self._used.add(name)
        return name
