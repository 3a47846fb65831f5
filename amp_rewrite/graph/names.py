"""Names: how errors call a node, and which names are free."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from amp_rewrite.graph.traverse import graphs_in

if TYPE_CHECKING:
    import onnx_ir as ir


class FreeNames:
    """The names in use, and the next free ones."""

    def __init__(self, taken: Iterable[str | None], form: str = "{}_{}") -> None:
        """Begin with the names that are taken; `form` joins a stem and a number."""
        self._taken = set(taken)
        self._form = form
        self._next: dict[str, int] = {}

    def add(self, name: str) -> None:
        """Take a name, free or not."""
        self._taken.add(name)

    def take(self, stem: str, *, first: int = 1) -> str:
        """Return `stem` if it is free, else the first free name of `number`; take it."""
        if stem in self._taken:
            return self.number(stem, first=first)
        self._taken.add(stem)
        return stem

    def number(self, stem: str, *, first: int = 0) -> str:
        """Return `stem` with the first number, from `first` on, that makes a free name; take it."""
        n = self._next.get(stem, first)
        while (name := self._form.format(stem, n)) in self._taken:
            n += 1
        self._next[stem] = n + 1
        self._taken.add(name)
        return name


def names_in(graph: ir.Graph) -> Iterator[str]:
    """Yield the names of a graph's values and of those in graphs inside it."""
    for inner in graphs_in(graph):
        yield from (v.name or "" for v in inner.inputs)
        yield from inner.initializers
        yield from (v.name or "" for node in inner for v in node.outputs)


def is_utf8(text: str) -> bool:
    """Return whether a text can be written in a model: single surrogates cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def place(node: ir.Node) -> str:
    """Return a node's name and operator, as `where` of an error."""
    operator = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
    return f"node {node.name!r} ({operator})"
