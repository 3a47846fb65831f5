"""The plan: which casts, which weights and which types a painting asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.graph.added import AddedNames
from amp_rewrite.graph.constants import constant_tensor
from amp_rewrite.graph.dataflow import TypeGraph, vertices_in
from amp_rewrite.graph.elements import tensor as tensor_type
from amp_rewrite.graph.flat import ABSENT, MAIN
from amp_rewrite.graph.proto.stored import StoredTensor
from amp_rewrite.graph.special_types import attribute_type
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.masks import Masks
from amp_rewrite.rewriting.paint.painting import Painting
from amp_rewrite.rewriting.paint.saturation import fill_saturation, saturation
from amp_rewrite.rewriting.plan.equal_ranks import PlannedRank, equal_ranks
from amp_rewrite.rewriting.plan.stored_constants import (
    PlannedWeight,
    Use,
    saturated_masks,
    stored_tables,
)

_SHORT = 16_384
"""The most elements of a short constant: no norm of a model has a longer scale."""


class PlannedCast(NamedTuple):
    """One Cast, shared by every use of a value that wants the other type.

    Attributes:
        limit: The magnitude at which elements end in front of it, by a Clip; 0 leaves them alone.
        clamp_names: The names of the Clip and of the two numbers that it reads.
    """

    value: int
    to: DType
    uses: tuple[Use, ...]
    name: str
    limit: float = 0.0
    clamp_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CastPlan:
    """Everything that a rewrite changes.

    Attributes:
        fills: ConstantOfShape vertex -> the magnitude at which its constant ends.
        retyped: The values that become low because of their producer.
        ends: Graph inputs and outputs whose own type becomes low; an output that is computed in
            float32 gives its place to a cast.
        inner: Value that gives its place as an output, and its name, to another one -> the name
            that it gets instead.
        ranks: Operands of products that get axes, so that ONNX Runtime loads the model.
        stashes: Nodes that get the low type as their stash_type.
    """

    low: DType
    casts: tuple[PlannedCast, ...] = ()
    weights: tuple[PlannedWeight, ...] = ()
    vertices: tuple[int, ...] = ()
    fills: Mapping[int, float] = field(default_factory=dict)
    retyped: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()
    inner: Mapping[int, str] = field(default_factory=dict)
    ranks: tuple[PlannedRank, ...] = ()
    stashes: tuple[int, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the plan changes nothing."""
        return not (self.casts or self.weights or self.vertices or self.ends or self.ranks)

    @property
    def computes_low(self) -> bool:
        """Whether anything computes in the low type."""
        return bool(self.vertices)


def plan_casts(context: PaintContext, painting: Painting) -> CastPlan:
    """Return the plan for a painting."""
    saturated = saturated_masks(context, painting)
    ends = {v: c.saturate for v, c in saturated.items()}
    masks = context.values.masks.ending(ends)
    stored = stored_tables(context, painting) | saturated
    return _Planner(context.type_graph, context, painting, stored, masks).plan()


@dataclass
class _Planner:
    type_graph: TypeGraph
    context: PaintContext
    painting: Painting
    stored: Mapping[int, PlannedWeight]
    masks: Masks
    ends: tuple[int, ...] = ()
    outputs: Counter[int] = field(default_factory=Counter[int])

    def __post_init__(self) -> None:
        self.flat, self.allowed = self.type_graph.flat, self.painting.allow

    def plan(self) -> CastPlan:
        """Collect every use that wants another type than its value has, and group by value."""
        low, flat = self.context.low, self.flat
        self.ends = self._converted_ends()
        # ABSENT, the last entry, is not low.
        self.is_low = np.append(self.allowed, np.False_)[np.array(self.type_graph.source, np.int64)]
        retyped = tuple(np.flatnonzero(self.is_low).tolist())
        inputs = set(flat.main.inputs)
        self.is_low[[v for v in self.ends if v in inputs]] = True
        names = AddedNames((*flat.value_names, *flat.node_names))
        casts: list[PlannedCast] = []
        weights: list[PlannedWeight] = []
        mismatches = self._mismatches()
        for constant in self.stored.values():
            name = names.cast(flat.value_names[constant.value], FLOAT32)
            low_uses = mismatches.pop(constant.value, [])
            weights.append(replace(constant, uses=tuple(low_uses), name=name))
            casts.append(self._read_back(constant.value, low_uses, name))
        for value, uses in mismatches.items():
            to = self.type_graph.base(value) if self.is_low[value] else low
            tensor = self._converted(value) if to is low else None
            name = names.cast(flat.value_names[value], to)
            if tensor is None:
                limit = self.masks.limit(value, [u.vertex for u in uses]) if to is low else 0.0
                clamp = names.clamp(flat.value_names[value]) if limit else ()
                casts.append(PlannedCast(value, to, tuple(uses), name, limit, clamp))
            else:
                weights.append(self._weight(value, tensor, uses, name))
        copies = [(w.value, w.uses, low) for w in weights if w.keep_float32]
        inner = {
            value: names.inner(
                flat.value_names[value], self.type_graph.base(value) if to is low else low
            )
            for value, uses, to in (*copies, *((c.value, c.uses, c.to) for c in casts))
            if flat.producer[value] != ABSENT and any(use.body == MAIN for use in uses)
        }
        vertices = tuple(vertices_in(self.allowed))
        fillers = [
            v for n in flat.nodes_of("ConstantOfShape") for v in self.type_graph.vertices_of(n)
        ]
        fills = {
            v: 0.0 if low is FLOAT32 else fill_saturation(self.context, v)
            for v in fillers
            if self.allowed[v]
        }
        ranks = equal_ranks(self.context, self.allowed, names)
        stashes = tuple(self._narrow_stashes())
        return CastPlan(
            *(low, tuple(casts), tuple(weights), vertices, fills, retyped, self.ends, inner),
            *(ranks, stashes),
        )

    def _narrow_stashes(self) -> Iterator[int]:
        """Yield the nodes that become low, and whose target casts for another stash_type."""
        target, flat = self.context.target, self.flat
        for node in flat.nodes_of(*(() if target is None else target.narrow_stash)):
            result, *others = flat.outputs_of(node)
            if self.is_low[result] and all(value == ABSENT for value in others):
                yield node

    def _converted_ends(self) -> tuple[int, ...]:
        """Return the graph inputs and outputs that give up their type; none in a float32 model."""
        main, ends = self.flat.main, self.context.low_ends
        if not self.allowed.any() and self.context.low is not FLOAT32:
            return ()
        return tuple(dict.fromkeys(v for v in (*main.inputs, *main.outputs) if v in ends))

    def _mismatches(self) -> dict[int, list[Use]]:
        """Return value -> the uses that want the other type, in execution order."""
        flat, uses_of = self.flat, dict[int, list[Use]]()
        reads = np.array(self.type_graph.reads, np.int64)
        values = np.array(flat.inputs, np.int64)
        # ABSENT, the last entry, neither wants the low type nor has it.
        wants, has = (np.append(mask, np.False_) for mask in (self.allowed, self.is_low))
        differs = (reads != ABSENT) & (wants[reads] != has[values])
        casts = {*flat.nodes_of("Cast")}
        for slot in np.flatnonzero(differs).tolist():
            value, node = flat.inputs[slot], flat.reader(slot)
            if node in casts and self._casts_by_itself(node, value):
                continue
            use = Use(node, flat.index(slot), vertex=self.type_graph.reads[slot])
            uses_of.setdefault(value, []).append(use)
        ends = {MAIN: [ABSENT] * len(flat.main.outputs), **self.type_graph.sinks}
        for number, vertices in ends.items():
            outputs = flat.bodies[number].outputs
            self.outputs.update(outputs)
            for index, (value, vertex) in enumerate(zip(outputs, vertices, strict=True)):
                wants_low = value in self.ends if number == MAIN else self._is_allowed(vertex)
                if wants_low != self.is_low[value]:
                    uses_of.setdefault(value, []).append(Use(ABSENT, index, number, vertex))
        return {v: uses for v, uses in uses_of.items() if self.type_graph.is_retyped(v)}

    def _is_allowed(self, vertex: int) -> bool:
        return vertex != ABSENT and bool(self.allowed[vertex])

    def _casts_by_itself(self, node: int, value: int) -> bool:
        """Tell whether a node is a Cast of the model that may read a value in the type it has."""
        flat, low = self.flat, tensor_type(self.context.low.number)
        schema = self.type_graph.ports_of(node).schema
        if schema is None:
            return False
        if self.is_low[value]:
            return low in schema.variables.get("T1", frozenset())
        gives_low = attribute_type(flat.attributes(node), "to") == low
        return gives_low or bool(self.is_low[flat.outputs_of(node)[0]])

    def _converted(self, value: int) -> StoredTensor | None:
        """Return the constant behind a value if it is converted in the file, rather than cast.

        Short ones are if the model is scaled and this raises it: Casts of what a norm that is
        written out reads would take what scaling saves.
        """
        context, tensor = self.context, constant_tensor(self.type_graph, value)
        raises = context.low is FLOAT32 and context.scaled.any()
        is_short = raises and tensor is not None and tensor.size <= _SHORT
        return tensor if context.converts_weights or is_short else None

    def _weight(
        self, value: int, tensor: StoredTensor, uses: list[Use], name: str
    ) -> PlannedWeight:
        total = len(self.flat.uses(value)) + self.outputs[value]
        vertices = [use.vertex for use in uses if use.vertex != ABSENT]
        low = self.context.low
        magnitude = 0.0
        if low is not FLOAT32:
            stats = self.context.values.stats(value, tensor)
            magnitude = saturation(self.type_graph, stats, vertices, low)
        return PlannedWeight(
            value,
            tensor,
            low,
            tuple(uses),
            keep_float32=len(uses) < total,
            saturate=magnitude,
            name=name,
        )

    def _read_back(self, value: int, low_uses: list[Use], name: str) -> PlannedCast:
        """Return the Cast of a stored constant, for all but the uses that read it low."""
        flat, low = self.flat, {(use.node, use.index) for use in low_uses}
        uses = [
            Use(flat.reader(slot), flat.index(slot), vertex=self.type_graph.reads[slot])
            for slot in flat.uses(value)
        ]
        others = tuple(use for use in uses if (use.node, use.index) not in low)
        return PlannedCast(value, FLOAT32, others, name)
