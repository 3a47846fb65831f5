"""The type graph without what every runtime drops before it looks for groups.

Identity, and a Cast to the type that its input has already, change nothing: a group goes on through
them, and what reads their output reads their input.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from amp_rewrite.dtypes import FLOAT32, OTHERS, DType
from amp_rewrite.graph.constants import constant_tensor, stored_tensor
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.proto.stored import StoredTensor

_FLOATS = frozenset(dtype.number for dtype in (FLOAT32, *OTHERS))


class Reader(NamedTuple):
    """One input of a node: the node, and which of its inputs it is."""

    node: int
    port: int


class PlainView:
    """Producers and readers of values, seen through nodes that change nothing."""

    def __init__(self, type_graph: TypeGraph, low: DType | None = None) -> None:
        """Look at a type graph, whose numbers a runtime may see in `low`; nothing is computed."""
        self.type_graph, self.low = type_graph, low
        self._flat = type_graph.flat

    def source(self, value: int) -> int:
        """Return the value that a value is, through any number of nodes that change nothing."""
        while value in self._same:
            value = self._same[value]
        return value

    def maker(self, value: int) -> int:
        """Return the node that computes a value, or ABSENT for an input or initializer."""
        return self._flat.producer[self.source(value)]

    def names_of(self, value: int) -> list[int]:
        """Return a source and every value that is the same, in execution order."""
        names = [value]
        for name in names:
            names += self._copies.get(name, ())
        return names

    def readers(self, value: int) -> list[Reader]:
        """Return what reads a source, without the nodes that change nothing."""
        flat = self._flat
        slots = [slot for name in self.names_of(value) for slot in flat.uses(name)]
        readers = [Reader(flat.reader(slot), flat.index(slot)) for slot in slots]
        return [reader for reader in readers if reader.node not in self.dropped]

    def leaves(self, value: int) -> bool:
        """Tell whether a source is an output of its graph, under any of its names."""
        return any(self._flat.is_output(name) for name in self.names_of(value))

    def constant(self, value: int) -> StoredTensor | None:
        """Return the float tensor behind a value, or None; runtimes compute a Cast of one first.

        A model that was repaired reads its 16-bit weights through such Casts.
        """
        source = self.source(value)
        tensor = constant_tensor(self.type_graph, source)
        maker = self._flat.producer[source]
        if tensor is not None or maker == ABSENT or not self.type_graph.is_retyped(source):
            return tensor
        if self._flat.called(maker)[:2] != ("", "Cast"):
            return None
        tensor = stored_tensor(self._flat, self.source(self._flat.inputs_of(maker)[0]))
        return tensor if tensor is not None and tensor.dtype in _FLOATS else None

    @cached_property
    def dropped(self) -> frozenset[int]:
        """The nodes that change nothing."""
        return frozenset(self._flat.producer[value] for value in self._same)

    @cached_property
    def _same(self) -> dict[int, int]:
        """Output of a node that changes nothing -> its input."""
        flat, types = self._flat, self.type_graph.types
        source_of: dict[int, int] = {}
        for node in flat.nodes_of("Identity", "Cast"):
            read, written = flat.inputs_of(node)[0], flat.outputs_of(node)[0]
            if read != ABSENT and types[read] == types[written]:
                source_of[written] = read
        return source_of

    @cached_property
    def _copies(self) -> dict[int, list[int]]:
        copies: dict[int, list[int]] = {}
        for written, read in self._same.items():
            copies.setdefault(read, []).append(written)
        return copies
