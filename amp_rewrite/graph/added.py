"""The names of what rewriting and emulating add, by which it is recognised.

`<value>-CastToFp16|CastToBf16|CastToFp32-<n>-AutoMixedPrecision`, as TensorFlow's rewrite names
them; whoever opens a rewritten model in a viewer can tell them apart as well. A value whose name
goes to the cast behind it (a graph output) is called `<value>-Fp16-<n>-AutoMixedPrecision`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from amp_rewrite.dtypes import FLOAT32, FLOAT64, LOW, DType
from amp_rewrite.graph.names import FreeNames, names_in
from amp_rewrite.graph.traverse import graphs_in

if TYPE_CHECKING:
    import onnx_ir as ir

SUFFIX = "-AutoMixedPrecision"

_LABELS = "|".join(t.label for t in (*LOW.values(), FLOAT32, FLOAT64))
_ADDED = re.compile(rf"(?P<value>.*)-(?:CastTo)?(?:{_LABELS})-\d+{SUFFIX}", re.DOTALL)


class AddedNames(FreeNames):
    """The names in use in a model, and the next free ones of what is added."""

    def __init__(self, names: Iterable[str | None]) -> None:
        """Take the names of the nodes and values of a model."""
        super().__init__(names, form=f"{{}}-{{}}{SUFFIX}")

    @classmethod
    def of(cls, graph: ir.Graph) -> AddedNames:
        """Collect the names of the nodes and values of a main graph and its subgraphs."""
        nodes = (node.name for inner in graphs_in(graph) for node in inner)
        return cls((*names_in(graph), *nodes))

    def cast(self, value: str, to: DType) -> str:
        """Return a name for a value cast to a type; take it."""
        return self.number(f"{value}-CastTo{to.label}")

    def inner(self, value: str, dtype: DType) -> str:
        """Return a name for a value that gives its own name to the cast behind it; take it."""
        return self.number(f"{value}-{dtype.label}")

    def clamp(self, value: str) -> tuple[str, ...]:
        """Return names for a Clip of a value and for the two ends that it reads; take them."""
        return tuple(self.number(f"{value}-{part}") for part in ("Clip", "ClipMin", "ClipMax"))

    def part(self, value: str, op: str) -> str:
        """Return a name for a node, or a value inside, that makes a value; take it."""
        return self.number(f"{value}-{op}")


def origin(name: str) -> str:
    """Return the value that an added value is a cast of; any other name as it is."""
    match = _ADDED.fullmatch(name)
    return match["value"] if match else name
