"""What a region of low vertices costs in casts, and what it saves.

A region is a connected set of low vertices. Its casts are those at its border that would not be
there if it were float32; each reads its value in one type and writes it in the other. What it saves
is half of all that its operators read and write, weights included, and the time in which 16-bit
units multiply faster than float32 ones, counted in the bytes that memory moves meanwhile.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.graph.constants import constant_tensor
from amp_rewrite.graph.flat import ABSENT, MAIN, Array
from amp_rewrite.graph.sizes import Sizes
from amp_rewrite.oplists import ListName
from amp_rewrite.rewriting.paint.context import PaintContext


@dataclass(slots=True)
class Region:
    """A connected region of low vertices.

    Attributes:
        vertices: Its vertices, in execution order.
        casts: The values that are cast, once each, for this region alone.
    """

    vertices: list[int] = field(default_factory=list[int])
    casts: list[int] = field(default_factory=list[int])


class RegionCosts:
    """The regions of a painting, and their costs as far as shapes are known."""

    def __init__(self, context: PaintContext, low: Array, sizes: Sizes) -> None:
        """Take a painting; nothing is computed yet."""
        self._context, self._low, self._sizes = context, low, sizes
        self._graph, self._flat = context.type_graph, context.type_graph.flat
        self._narrowed = FLOAT32.numpy.itemsize - context.low.numpy.itemsize

    def cast_bytes(self, value: int) -> int | None:
        """Return what a Cast of a value reads and writes in a run; None if that is not known.

        That of a constant is folded when the model is loaded.
        """
        if constant_tensor(self._graph, value) is not None:
            return 0
        elements = self._sizes.elements(value)
        itemsizes = FLOAT32.numpy.itemsize + self._context.low.numpy.itemsize
        return None if elements is None else elements * itemsizes

    def saved_bytes(self, vertex: int) -> int | None:
        """Return how much less an operator reads and writes for a low vertex, weights included."""
        counts = [self._sizes.elements(value) for value in self._graph.values_of(vertex)]
        sizes = [count for count in counts if count is not None]
        return self._narrowed * sum(sizes) if len(sizes) == len(counts) else None

    def multiply_accumulates(self, vertex: int) -> int | None:
        """Return the multiply-accumulates that a low vertex makes faster; None if not known.

        Operators that are not on the allow list do none that count.
        """
        if self._context.list_of(vertex) is not ListName.ALLOW:
            return 0
        return self._sizes.multiply_accumulates(self._graph.nodes[vertex])

    @cached_property
    def regions(self) -> list[Region]:
        """The regions, in execution order."""
        region_of: dict[int, Region] = defaultdict(Region)
        for vertex in np.flatnonzero(self._low).tolist():
            region_of[self._labels[vertex]].vertices.append(vertex)
        for value, label in self._entering() | self._leaving():
            region_of[label].casts.append(value)
        for region in region_of.values():
            region.casts.sort()
        return list(region_of.values())

    @cached_property
    def _labels(self) -> list[int]:
        graph = self._graph
        handles = np.array(graph.handles, np.int64).reshape(-1, 2)
        return connected_regions(self._low, np.concatenate((graph.edges, handles))).tolist()

    @cached_property
    def _is_low(self) -> Array:
        """By value, whether it is low; the last entry, ABSENT, is not."""
        sources = np.array(self._graph.source, np.int64)
        is_low = np.append(np.append(self._low, np.False_)[sources], np.False_)
        is_low[[v for v in self._context.low_ends if self._flat.is_input(v)]] = True
        return is_low

    def _entering(self) -> set[tuple[int, int]]:
        """Return (value, region) of the float32 values that are cast for one region alone."""
        reads = np.array(self._graph.reads, np.int64)
        values = np.array(self._flat.inputs, np.int64)
        wants = np.append(self._low, np.False_)[reads]
        regions: dict[int, set[int]] = {}
        for slot in np.flatnonzero(wants & ~self._is_low[values]).tolist():
            label = self._labels[self._graph.reads[slot]]
            regions.setdefault(self._flat.inputs[slot], set()).add(label)
        return {
            (value, label)
            for value, labels in regions.items()
            for label in labels
            if len(labels) == 1 and self._is_cast(value)
        }

    def _is_cast(self, value: int) -> bool:
        """Tell whether a float32 value is cast at run time, and for its low consumers alone.

        Casts of the model that read it may serve others as well.
        """
        flat = self._flat
        is_low_output = flat.is_output(value) and value in self._context.low_ends
        has_casts = any(flat.called(node)[:2] == ("", "Cast") for node in flat.readers(value))
        return not (is_low_output or has_casts) and constant_tensor(self._graph, value) is None

    def _leaving(self) -> set[tuple[int, int]]:
        """Return (value, region) of the low values that are cast for what reads them as float32."""
        graph, flat = self._graph, self._flat
        reads, values = np.array(graph.reads, np.int64), np.array(flat.inputs, np.int64)
        stays = (reads != ABSENT) & ~np.append(self._low, np.False_)[reads]
        leaving = {
            flat.inputs[slot]
            for slot in np.flatnonzero(stays & self._is_low[values]).tolist()
            if flat.called(flat.reader(slot))[:2] != ("", "Cast")
        }
        leaving |= set(self._float32_outputs())
        sources = {value: graph.source[value] for value in leaving}
        return {(value, self._labels[v]) for value, v in sources.items() if v != ABSENT}

    def _float32_outputs(self) -> Iterator[int]:
        """Yield the low values that an output of a graph gives as float32."""
        flat = self._flat
        for number, body in enumerate(flat.bodies):
            sinks = self._graph.sinks.get(number, [ABSENT] * len(body.outputs))
            for value, sink in zip(body.outputs, sinks, strict=True):
                wants_low = sink != ABSENT and bool(self._low[sink])
                if number == MAIN:
                    wants_low = value in self._context.low_ends
                if self._is_low[value] and not wants_low:
                    yield value


def total(parts: Iterable[int | None]) -> int | None:
    """Return a sum; None if a part of it is not known."""
    total_sum = 0
    for part in parts:
        if part is None:
            return None
        total_sum += part
    return total_sum


def connected_regions(inside: Array, edges: Array) -> Array:
    """Return, by vertex, the smallest vertex of its connected region; ABSENT outside.

    Every vertex points to one of its region that is no larger, at first to itself. The ends of an
    edge are joined by letting what the one points to point to what the other does, where that is
    smaller, and paths are then cut short; a few rounds join any region. An edge counts if both of
    its ends are inside.
    """
    points_to = np.arange(len(inside))
    edges = edges[inside[edges].all(axis=1)]
    while True:
        ends = np.sort(points_to[edges], axis=1)
        ends = ends[ends[:, 0] != ends[:, 1]]
        if not len(ends):
            return np.where(inside, points_to, ABSENT)
        np.minimum.at(points_to, ends[:, 1], ends[:, 0])
        while not np.array_equal(shorter := points_to[points_to], points_to):
            points_to = shorter
