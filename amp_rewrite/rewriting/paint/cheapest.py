"""The cheapest part of a painting: which of its low vertices a target with measured costs keeps.

What the passes painted is what may be low; the rest stays float32 whatever that costs. Of the first
those are taken that make the least running time together: a minimum cut (min_cut.py) between
float32 and low, whose arcs are the casts at values and what is lost where operators that the target
computes together are separated (painting.md, section 10). Vertices that must have one type are one
there: the members of a fused group or of a sequence.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.graph.dataflow import vertices_in
from amp_rewrite.graph.flat import ABSENT, Array
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.oplists import ListName
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.min_cut import Arcs, cheapest_set
from amp_rewrite.rewriting.paint.painting import Color, Mark, Painting, Reason
from amp_rewrite.rewriting.paint.region_costs import connected_regions
from amp_rewrite.rewriting.paint.running_time import UNIT, RunningTime
from amp_rewrite.rewriting.paint.weighing import (
    LEAST_CALL,
    LEAST_SAVED,
    LEAST_SHARE,
    MICROSECONDS_PER_BYTE,
    Weighing,
)

# operators: products that runtimes add a tensor to
_CONVOLUTIONS = ("Conv", "ConvTranspose")

_FLOAT32_BYTES = FLOAT32.numpy.itemsize

_LEAST_OF_RESIDUALS = 0.1
"""What share of a mean operator's time the residual of a transformer has to save, if the table asks
for less: with .02 ModernBERT has three times the error of OpenVINO's own choice, with .1 as much.
"""


class _Rows(NamedTuple):
    """Arcs as they are collected: from, to, cost."""

    tails: Array
    heads: Array
    costs: Array


class Saved(NamedTuple):
    """What a choice saves, in picoseconds.

    Attributes:
        time: How much less the model takes.
        whole: What it takes in float32.
    """

    time: int
    whole: int

    @property
    def share(self) -> float:
        """What share of the time is saved."""
        return self.time / self.whole


class CheapestRegions:
    """What a painting costs, and which part of it costs least."""

    def __init__(self, context: PaintContext, weighing: Weighing, painting: Painting) -> None:
        """Take a finished painting; nothing is computed yet."""
        self._context, self._weighing, self._painting = context, weighing, painting
        self._graph, self._time = context.type_graph, RunningTime(context, weighing)

    def marks(self, excluded: Collection[int], wanted: Collection[int]) -> dict[int, Mark]:
        """Return the marks of the vertices that are dearer low than in float32.

        They are all if what is left would save less than `LEAST_SHARE` of the model's time, or less
        than `LEAST_CALL` for each operator and Cast of it, unless vertices have to be low or the
        size of the file is preferred. `excluded` vertices must be float32 though they are painted,
        `wanted` ones must stay low.
        """
        stays = self._painting.allow & ~self._graph.mask(excluded)
        asked = {*wanted, *self._asked_for()}
        low = self._choice(stays, self._graph.mask(asked))[: len(self._graph)] & stays
        marks = self._explained(low)
        if low.any() and not asked and self._weighing.prefer != "size":
            saved = self.saved(low)
            calls = int((low & (self._time.times(FLOAT32) > 0)).sum())
            calls += int((self._flow_times(low) > 0).sum())
            if saved.time < max(LEAST_SHARE * saved.whole, LEAST_CALL * UNIT * calls):
                share = max(saved.share, 0)
                words = f"{self._context.low.name} would save {share:.1%} of the model's time"
                least = "too little" if share < LEAST_SHARE else f"too little for {calls:,} calls"
                mark = Mark(Color.NONE, Reason.NO_GAIN, None, f"{words}, {least}")
                marks |= dict.fromkeys(vertices_in(low), mark)
        return marks

    def saved(self, low: Array) -> Saved:
        """Return what a choice saves of the model's predicted time in float32."""
        nothing = np.zeros_like(low)
        whole = int(self._time.times(FLOAT32).sum() - self._time.joins.float32.sum())
        more = int(self._time_costs[low].sum())
        more += int((self._flow_times(low) - self._flow_times(nothing)).sum())
        more += int(self._lost(low).sum())
        return Saved(-more, max(whole, 1))

    def _asked_for(self) -> Iterator[int]:
        """Yield the painted vertices that the user asks for by name, or by the level."""
        context, painting = self._context, self._painting
        for vertex in painting.allowed() if context.rules.allow or context.lists.force_all else ():
            if painting.marks[vertex].reason is Reason.FORCED or context.is_allowed(vertex):
                yield vertex

    def _choice(self, stays: Array, wanted: Array) -> Array:
        """Return a mask of the low ends of all rows, of which vertices are the first.

        Only vertices in `stays` may be low, those in `wanted` have to be.
        """
        time, parts = self._time, [*self._flow_rows()]
        size = 1 + max(time.low, *(int(rows.tails.max(initial=0)) for rows in parts))
        size = max(size, 1 + max(int(rows.heads.max(initial=0)) for rows in parts))
        tails, heads, costs = (np.concatenate(column) for column in zip(*parts, strict=True))
        own = np.zeros(size, np.int64)
        own[: len(self._graph)] = self._own_costs
        end = np.arange(size)
        end[: len(stays)] = self._one_type(stays)
        end[: len(stays)][~stays] = time.float32
        end[np.unique(end[: len(stays)][wanted & stays])] = time.low
        end = end[end]
        tails, heads = end[tails], end[heads]
        merged = np.zeros_like(own)
        np.add.at(merged, end, own)
        # What is low for certain, and what is float32, hands the costs of its arcs on.
        np.add.at(merged, tails, np.where(heads == time.float32, costs, 0))
        np.subtract.at(merged, heads, np.where(tails == time.low, costs, 0))
        fixed = (time.float32, time.low)
        between = ~np.isin(tails, fixed) & ~np.isin(heads, fixed) & (tails != heads) & (costs > 0)
        merged[list(fixed)] = 0
        low = cheapest_set(merged, Arcs(tails[between], heads[between], costs[between]))
        low[time.low] = True
        return low[end]

    @cached_property
    def _time_costs(self) -> Array:
        """By vertex, what it takes low more than in float32."""
        own = self._time.times(self._context.low) - self._time.times(FLOAT32)
        for vertex, saved in self._time.raised():
            own[vertex] -= saved
        joins = self._time.joins
        half = (joins.float32 - joins.low) // 2
        np.add.at(own, joins.makers, half)
        np.add.at(own, joins.readers, joins.float32 - joins.low - half)
        return own

    @cached_property
    def _own_costs(self) -> Array:
        """By vertex, what it costs low, with what rounding counts unless size is preferred."""
        prefer, prices = self._weighing.prefer, self._weighing.prices
        own, rounds = self._time_costs, self._painting.allow & ~self._context.on(ListName.CLEAR)
        if prefer != "size":
            times = self._time.times(FLOAT32)
            share = LEAST_SAVED if prefer == "accuracy" else 0
            saves = times * share + self._least_saved
            own = own + np.where(rounds & (times > 0), np.rint(saves).astype(np.int64), 0)
        return own if prices is None else own + self._rounding(prices, rounds)

    @property
    def _least_saved(self) -> Array:
        """By vertex, what one that rounds has to save in any case.

        It is the same in a model that was rewritten already: what is low counts as in float32.
        """
        share, taken = self._weighing.table.least_rounding, self._time.of_nodes
        with_product, residual = self._with_products
        shares = np.where(residual, max(share, _LEAST_OF_RESIDUALS), share)
        mean = int(taken.sum()) / max(int((taken > 0).sum()), 1)
        return np.where(with_product, 0, shares) * mean

    @cached_property
    def _with_products(self) -> tuple[Array, Array]:
        """Masks of what is computed, and rounded, together with a product, and of residuals.

        The former are what stands behind it and else reads constants only, a chain of it, and the
        nodes of patterns that the target computes so. What is folded into the weights of a Conv is
        that Conv: a tensor that is added behind it is added by it. A tensor that is added behind
        another product is the residual of a transformer, and rounded in each layer.
        """
        graph, joins, residual = self._graph, self._time.joins, set[int]()
        called, with_product, convolved = graph.flat.called, set[int](), set[int]()
        columns = (column.tolist() for column in (joins.readers, joins.makers, joins.folded))
        for reader, maker, is_folded in sorted(zip(*columns, strict=True)):
            maker_operator = called(graph.nodes[maker])
            is_convolved = maker_operator.op_type in _CONVOLUTIONS or maker in convolved
            if is_folded and is_convolved:
                convolved.add(reader)
            of_product = has(maker_operator, Trait.CONTRACTS) or maker in with_product
            if is_convolved or (of_product and self._time.reads_one_value(reader)):
                with_product.add(reader)
            elif of_product and has(called(graph.nodes[reader]), Trait.ADDS):
                residual.add(reader)
        for members in self._groups(self._weighing.table.with_products):
            makers = (v for m in members for v in (m, *graph.predecessors(m)))
            if any(v in with_product or has(graph.operator_of(v), Trait.CONTRACTS) for v in makers):
                with_product.update(members)
        return graph.mask(with_product), graph.mask(residual)

    def _groups(self, names: Collection[str]) -> Iterator[list[int]]:
        """Yield the vertices of the groups of these patterns."""
        yield from self._vertices(self._time.groups(names))

    def _vertices(self, groups: Iterable[Iterable[int]]) -> Iterator[list[int]]:
        """Yield the vertices of groups of nodes."""
        for nodes in groups:
            yield [v for node in nodes for v in self._graph.vertices_of(node)]

    def _rounding(self, prices: Array, rounds: Array) -> Array:
        """Return, by vertex, what rounding its results and the constants that it reads counts."""
        flat, flows = self._graph.flat, self._time.flows
        counts = np.zeros(len(self._graph) + 2, np.int64)
        writes = np.array(self._graph.writes, np.int64)
        has_value = writes != ABSENT
        np.add.at(counts, writes[has_value], prices[np.array(flat.outputs, np.int64)[has_value]])
        counts[: len(rounds)][~rounds] = 0
        read = self._time.constants[flows.values] > 0
        np.add.at(counts, flows.readers[read], prices[flows.values[read]])
        return counts[: len(rounds)]

    @cached_property
    def _cast_costs(self) -> tuple[Array, Array]:
        """By value that flows, what a Cast to the low type takes, and what one to float32 takes."""
        return self._time.casts(self._context.low), self._time.casts(FLOAT32)

    @cached_property
    def _arc_costs(self) -> tuple[Array, Array]:
        """The same, with what rounding counts where a Cast rounds."""
        (down, up), prices, flows = self._cast_costs, self._weighing.prices, self._time.flows
        if prices is None or not len(flows.values):
            return down, up
        values = flows.values[flows.first]
        return down + np.where(self._time.constants[values] > 0, 0, prices[values]), up

    def _flow_rows(self) -> Iterator[_Rows]:
        """Yield the arcs of casts, of pairs that are computed together, and of what implies what.

        Where several read a value, one Cast serves them all: two more vertices stand for the two
        Casts, which are there if any of the readers differs from the maker.
        """
        flows, (down, up) = self._time.flows, self._arc_costs
        several = np.bincount(flows.group)[flows.group] > 1 if len(flows.values) else flows.group
        one, many = np.flatnonzero(several == 0), np.flatnonzero(several)
        makers, readers, group = flows.makers, flows.readers, flows.group
        yield _Rows(readers[one], makers[one], down[group[one]])
        yield _Rows(makers[one], readers[one], up[group[one]])
        first = self._time.low + 1
        lowered, raised = first + 2 * group, first + 2 * group + 1
        yield _Rows(readers[many], lowered[many], down[group[many]])
        yield _Rows(raised[many], readers[many], up[group[many]])
        starts = flows.first[several[flows.first] > 0] if len(flows.values) else flows.first
        yield _Rows(lowered[starts], makers[starts], down[group[starts]])
        yield _Rows(makers[starts], raised[starts], up[group[starts]])
        joins = self._time.joins
        half = (joins.float32 - joins.low) // 2
        yield _Rows(joins.makers, joins.readers, joins.float32 - half)
        rest = joins.low + half
        yield _Rows(joins.readers, joins.makers, rest)
        yield self._implied()
        if self._weighing.prefer == "size":
            yield from self._byte_rows(first + 2 * len(flows.first))

    def _byte_rows(self, first: int) -> Iterator[_Rows]:
        """Yield the arcs of what the constants take in the file, in either type or in both.

        Args:
            first: The first number that no vertex has yet; two are taken for each constant.
        """
        time, flows = self._time, self._time.flows
        rows = np.flatnonzero(time.constants[flows.values])
        if not len(rows):
            return
        group, readers = flows.group[rows], flows.readers[rows]
        byte = int(MICROSECONDS_PER_BYTE * UNIT)
        low_bytes = time.constants[flows.values[rows]] * self._context.low.numpy.itemsize * byte
        full_bytes = time.constants[flows.values[rows]] * _FLOAT32_BYTES * byte
        full, low = first + 2 * group, first + 2 * group + 1
        yield _Rows(full, readers, full_bytes)
        yield _Rows(readers, low, low_bytes)
        one = np.flatnonzero(np.diff(group, prepend=ABSENT))
        yield _Rows(np.full(len(one), time.low), full[one], full_bytes[one])
        yield _Rows(low[one], np.full(len(one), time.float32), low_bytes[one])

    def _implied(self) -> _Rows:
        """Return arcs that nothing pays: a Cast of the model becomes low with all that read it."""
        marks = self._painting.marks
        pairs = [
            (vertex, reader)
            for vertex, mark in marks.items()
            if mark.color is Color.ALLOW
            and mark.reason in (Reason.RETARGETED, Reason.RETARGETED_SCALES)
            for reader in self._graph.successors(vertex)
        ]
        ends = np.array(pairs, np.int64).reshape(-1, 2)
        return _Rows(ends[:, 0], ends[:, 1], np.full(len(ends), self._beyond))

    @cached_property
    def _beyond(self) -> int:
        """More than any choice costs."""
        down, up = self._arc_costs
        joins = self._time.joins
        parts = (np.abs(self._own_costs), down, up, joins.float32, joins.low)
        return 1 + sum(int(part.sum()) for part in parts)

    def _one_type(self, stays: Array) -> Array:
        """Return, by vertex, the first of those that must have its type."""
        graph, sets = self._graph, list[Iterable[int]]()
        for fused in self._context.groups:
            sets += [fused.results, fused.tail] if fused.tail else [fused.core]
        sets += [*self._context.clusters, *self._groups(self._weighing.table.one_type)]
        sets += self._vertices(self._time.measured_together())
        sets += self._time.idle
        sets += [
            (vertex, *graph.successors(vertex))
            for vertex, mark in self._painting.marks.items()
            if mark.reason is Reason.RETARGETED_SCALES
        ]
        kept = ([v for v in members if stays[v]] for members in sets)
        edges = [pair for members in kept for pair in pairwise(members)]
        labels = connected_regions(stays, np.array(edges, np.int64).reshape(-1, 2))
        return np.where(stays, labels, np.arange(len(stays)))

    def _explained(self, low: Array) -> dict[int, Mark]:
        """Return the marks of the painted vertices that are not among `low`, with what they cost.

        Those that share a value are one region, which is weighed as a whole: what the painting
        takes more with it.
        """
        off = self._painting.allow & ~low
        if not off.any():
            return {}
        flows, padded = self._time.flows, np.append(off, (False, False))
        members = np.concatenate((flows.makers, flows.readers))
        values = np.concatenate((flows.values, flows.values))
        rows = np.flatnonzero(padded[members])
        rows = rows[np.argsort(values[rows], kind="stable")]
        same = values[rows][1:] == values[rows][:-1]
        pairs = np.stack((members[rows][:-1][same], members[rows][1:][same]), axis=1)
        labels = connected_regions(padded, pairs)
        more = np.zeros(len(padded), np.int64)
        np.add.at(more, labels[: len(off)][off], self._time_costs[off])
        change = self._flow_times(low | off) - self._flow_times(low)
        touched = labels[members[rows]]
        by_value = np.concatenate((flows.group, flows.group))[rows]
        _, once = np.unique(by_value, return_index=True)
        np.add.at(more, touched[once], change[by_value[once]])
        self._add_joins(more, labels, low)
        excluded = vertices_in(off)
        sizes = np.bincount(labels[: len(off)][off], minlength=len(more))
        mark: dict[int, Mark] = {}
        for label in np.unique(labels[excluded]).tolist():
            words = self._words(int(sizes[label]), int(more[label]))
            mark[label] = Mark(Color.NONE, Reason.NO_GAIN, None, words)
        return {vertex: mark[labels[vertex]] for vertex in excluded}

    def _flow_times(self, low: Array) -> Array:
        """Return, by value that flows, what its Cast takes if these vertices are low."""
        flows, (down, up) = self._time.flows, self._cast_costs
        if not len(flows.values):
            return down
        is_low = np.append(low, (False, True))
        reads = is_low[flows.readers]
        any_low = np.logical_or.reduceat(reads, flows.first)
        all_low = np.logical_and.reduceat(reads, flows.first)
        maker_is_low = is_low[flows.makers[flows.first]]
        return np.where(maker_is_low, np.where(all_low, 0, up), np.where(any_low, down, 0))

    def _lost(self, low: Array) -> Array:
        """Return, by pair, what is lost if these vertices are low since its ends differ."""
        joins = self._time.joins
        maker_is_low, read = low[joins.makers], low[joins.readers]
        half = (joins.float32 - joins.low) // 2
        parted = np.where(maker_is_low & ~read, joins.float32 - half, 0)
        return parted + np.where(read & ~maker_is_low, joins.low + half, 0)

    def _add_joins(self, more: Array, labels: Array, low: Array) -> None:
        """Add what the pairs that the choice keeps together would lose in the painting, or gain."""
        joins, all_low = self._time.joins, low | self._painting.allow
        label = np.where(
            labels[joins.makers] == ABSENT, labels[joins.readers], labels[joins.makers]
        )
        there = label != ABSENT
        np.add.at(more, label[there], (self._lost(all_low) - self._lost(low))[there])

    def _words(self, vertices: int, more: int) -> str:
        what = "it" if vertices == 1 else f"it and {vertices - 1:,} more with it"
        milliseconds = f"{abs(more) / UNIT / 1000:.3g} ms"
        low = self._context.low.name
        if more >= 0:
            return f"computing {what} in {low} would cost {milliseconds} more than it saves"
        return f"computing {what} in {low} would save {milliseconds}, too little for its rounding"
