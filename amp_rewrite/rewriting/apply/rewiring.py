"""Who reads what after a rewrite, where added nodes stand, and what values are called then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from onnx.numpy_helper import from_array

from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.graph.flat import ABSENT, MAIN, FlatGraph
from amp_rewrite.rewriting.plan.casts import CastPlan, PlannedCast, PlannedWeight, Use
from amp_rewrite.rewriting.plan.equal_ranks import PlannedRank


@dataclass(eq=False, slots=True)
class Added:
    """A value that the rewrite adds: another one in another type.

    Attributes:
        like: The value of the model that it copies.
        gave: The output of the model that it took the place of, under that one's name, or ABSENT.
    """

    name: str
    like: int
    dtype: DType
    gave: int = ABSENT


Read = int | Added
"""An input of a node: a value of the model, or one that is added."""


class NewNode(NamedTuple):
    """A node that is added.

    Attributes:
        inputs: What it reads, where removed Casts still are.
    """

    op_type: str
    inputs: tuple[Read, ...]
    attributes: Mapping[str, Any]


Item = int | str
"""A node: one of the model, or the name of one that is added."""

OPSET_OF_CLIP_INPUTS = 11
"""Since then the bounds of Clip are inputs, before attributes."""

OPSET_OF_AXES_INPUT = 13
"""Since then the axes of Unsqueeze and Squeeze are an input, before an attribute."""


class Rewiring:
    """The edges of a graph after a plan; nothing is copied.

    Attributes:
        weights: Constant -> how it is converted, for those that do not stay float32.
        copies: Graph -> the low-precision copies of its initializers that stay float32.
        planned: Name of an added node -> the node, or the constant that it holds.
        added: Name of an added node or initializer -> the value that it makes.
        wide: Product -> what its node makes instead, an axis too many that a Squeeze takes away.
        redirected: Position in `flat.inputs` -> what is read there in the place of what was.
        outputs: (graph, index) -> what an output of a graph is instead.
        renamed: Value that has given its name to what is a graph output instead -> its name.
    """

    def __init__(self, flat: FlatGraph, plan: CastPlan, removed: Iterable[int]) -> None:
        """Look up what concerns which node and value."""
        self.flat, self.plan, self.removed = flat, plan, set(removed)
        self.weights = {w.value: w for w in plan.weights if not w.keep_float32}
        self.copies: dict[int, list[PlannedWeight]] = {}
        self.planned: dict[str, NewNode | PlannedWeight] = {}
        self.added: dict[str, Added] = {}
        self._makes: dict[str, int] = {}
        self.wide: dict[int, Read] = {}
        self.outputs: dict[tuple[int, int], Read] = {}
        self.redirected: dict[int, Read] = {}
        self._instead: dict[int, Read] = {}
        self.renamed: dict[int, str] = {}
        self._ends = Counter(value for body in flat.bodies for value in body.outputs)
        self._behind: dict[Item, list[Item]] = {}
        self._ahead: dict[int, list[Item]] = {}
        self._first: dict[int, Item] = {}
        self._last_at_start: dict[int, Item] = {}
        for weight in plan.weights:
            if weight.keep_float32:
                self._copy(weight)
        for cast in plan.casts:
            self._cast(cast)
        for node in self.removed:
            source = self.read(flat.input_start[node])
            self._instead[flat.outputs_of(node)[0]] = source
        for rank in plan.ranks:
            self._equal_ranks(rank)

    def _copy(self, weight: PlannedWeight) -> None:
        flat, value = self.flat, weight.value
        self.added[weight.name] = Added(weight.name, value, weight.dtype)
        if flat.producer[value] == ABSENT:
            self.copies.setdefault(flat.home[value], []).append(weight)
        else:
            self.planned[weight.name] = weight
            self._behind.setdefault(flat.producer[value], []).insert(0, weight.name)
        self._redirect(weight.uses, value, self.added[weight.name])

    def _cast(self, cast: PlannedCast) -> None:
        clamp = self._clamp(cast) if cast.limit else []
        read = self.added[clamp[-1]] if clamp else cast.value
        node = self._add(cast.name, "Cast", [read], cast.value, cast.to, to=cast.to.number)
        chain = [*clamp, cast.name]
        self._insert(chain[0], cast.value)
        for before, item in pairwise(chain):
            self._behind.setdefault(before, []).append(item)
        self._redirect(cast.uses, cast.value, node)

    def _add(
        self,
        name: str,
        op_type: str,
        inputs: Sequence[Read],
        like: int,
        dtype: DType,
        **attributes: Any,
    ) -> Added:
        """Plan a node; return what it makes, which copies the value `like`, if any."""
        self.planned[name] = NewNode(op_type, (*inputs,), attributes)
        self.added[name] = Added(name, like, dtype)
        return self.added[name]

    def _clamp(self, cast: PlannedCast) -> list[str]:
        """Plan the Clip in front of a Cast; return it behind the numbers that it reads."""
        clip, *ends = cast.clamp_names
        limits = {"min": -cast.limit, "max": cast.limit}
        if self.flat.opsets.get("", 1) < OPSET_OF_CLIP_INPUTS:
            self._add(clip, "Clip", [cast.value], cast.value, FLOAT32, **limits)
            return [clip]
        read: list[Read] = [cast.value]
        for name, limit in zip(ends, limits.values(), strict=True):
            number = from_array(np.array(limit, np.float32))
            read.append(self._add(name, "Constant", [], ABSENT, FLOAT32, value=number))
        self._add(clip, "Clip", read, cast.value, FLOAT32)
        return [*ends, clip]

    def _equal_ranks(self, rank: PlannedRank) -> None:
        """Give an operand axes in front of a product, and take those of the product away."""
        slot = self.flat.input_start[rank.node] + rank.index
        ahead = self._ahead.setdefault(rank.node, [])
        ahead += self._axed("Unsqueeze", self.read(slot), rank.axes, *rank.names)
        self.redirected[slot] = self.added[rank.names[0]]
        if not rank.product_axes:
            return
        product, (wide, *names) = self.flat.outputs_of(rank.node)[0], rank.product_names
        self.wide[product] = Added(wide, ABSENT, self.plan.low)
        squeeze = self._axed("Squeeze", self.wide[product], rank.product_axes, *names)
        behind: Item = rank.node
        for item in squeeze:
            self._behind.setdefault(behind, []).insert(0, item)
            behind = item
        self._makes[squeeze[-1]] = product

    def _axed(
        self, op_type: str, source: Read, axes: tuple[int, ...], name: str, constant: str
    ) -> list[str]:
        """Plan an Unsqueeze or Squeeze; return it behind the constant that it reads."""
        low = self.plan.low
        if self.flat.opsets.get("", 1) < OPSET_OF_AXES_INPUT:
            self._add(name, op_type, [source], ABSENT, low, axes=axes)
            return [name]
        numbers = from_array(np.array(axes, np.int64))
        read = self._add(constant, "Constant", [], ABSENT, FLOAT32, value=numbers)
        self._add(name, op_type, [source, read], ABSENT, low)
        return [constant, name]

    def _insert(self, item: Item, value: int) -> None:
        """Put a node right behind what makes a value, or at the start of the value's graph."""
        before: Item | None = self.flat.producer[value]
        if before == ABSENT:
            body = self.flat.home[value]
            before = self._last_at_start.get(body)
            self._last_at_start[body] = item
            if before is None:
                self._first[body] = item
                return
        self._behind.setdefault(before, []).insert(0, item)

    def _redirect(self, uses: Iterable[Use], old: int, new: Read) -> None:
        for use in uses:
            if use.node != ABSENT:
                self.redirected[self.flat.input_start[use.node] + use.index] = new
            else:
                self._replace_output(use.body, use.index, old, new)

    def _replace_output(self, body: int, index: int, old: int, new: Read) -> None:
        """Make `new` a graph output; in the main graph it takes over the output's name."""
        flat = self.flat
        self.outputs[body, index] = new
        self._ends[old] -= 1
        is_made = flat.producer[old] != ABSENT and not self._ends[old]
        if body == MAIN and is_made and isinstance(new, Added):
            self.renamed[old] = self.plan.inner[old]
            new.name, new.gave = flat.value_names[old], old

    def touched(self) -> set[int]:
        """Return the nodes whose edges change, or whose constant does."""
        flat = self.flat
        nodes = {flat.reader(slot) for slot in self.redirected}
        for value in (*self.renamed, *self._instead):
            nodes |= {*flat.readers(value), flat.producer[value]}
        return nodes | {flat.producer[v] for v in self.weights if flat.producer[v] != ABSENT}

    def read(self, slot: int) -> Read:
        """Return what is read at a position in `flat.inputs` now."""
        return self.left_of(self.redirected.get(slot, self.flat.inputs[slot]))

    def made_by(self, name: str) -> Read:
        """Return the value that an added node makes."""
        return self._makes[name] if name in self._makes else self.added[name]

    def left_of(self, read: Read) -> Read:
        """Return a value, or what a removed Cast that made it reads."""
        while isinstance(read, int) and read in self._instead:
            read = self._instead[read]
        return read

    def name(self, read: Read) -> str:
        """Return the name of a value now."""
        if isinstance(read, Added):
            return read.name
        return self.renamed.get(read) or self.flat.value_names[read]

    def in_order(self, body: int) -> Iterator[Item]:
        """Yield the nodes of a graph, removed ones included, each before what was put behind it."""
        waiting = [self._first[body]] if body in self._first else []
        for node in self.flat.bodies[body].nodes:
            if node in self._ahead:
                waiting += self._ahead[node]
            waiting.append(node)
        waiting.reverse()
        while waiting:
            item = waiting.pop()
            yield item
            if item in self._behind:
                waiting += reversed(self._behind[item])
