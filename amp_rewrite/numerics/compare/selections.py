"""Which elements operators select, and a rewritten model that is told which to take.

TopK, NonMaxSuppression, ArgMax and NonZero choose by comparing numbers. A near tie that rounding
swaps puts another box in each place after it, and none of the numbers compared place by place says
that both are right. So the values are compared for the original's selection, if the numbers that
are compared pass as outputs do.

Evidence: ssd_nms (docs/measured.md), whose boxes change places: cosine .946 place by place; with,
the values are compared for the original's choice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.base.printable import share
from amp_rewrite.errors import AmpError
from amp_rewrite.graph.elements import FLOAT32_TYPES
from amp_rewrite.graph.names import names_in
from amp_rewrite.graph.tensors import known_tensor
from amp_rewrite.graph.traits import operator
from amp_rewrite.numerics.compare.distance import AGREEMENT, Comparer, Tolerances
from amp_rewrite.numerics.emulate.evaluator import Evaluator
from amp_rewrite.numerics.emulate.typed_model import TypedModel
from amp_rewrite.numerics.inputs.batches import Feeds

# operators: which output says what was selected is asked here alone
_INDEX: Mapping[str, int] = {
    "TopK": 1,
    "NonMaxSuppression": 0,
    "ArgMax": 0,
    "ArgMin": 0,
    "NonZero": 0,
}
"""Operator that selects -> which of its outputs says what; of the second the first has values."""

# operators: of these NonZero reads what is true
_COMPARES = frozenset({"Greater", "GreaterOrEqual", "Less", "LessOrEqual"})

_GATHERS_FROM = 11
"""The opset from which GatherElements is there, which takes the values of a selection."""

Values = Mapping[str, Any]
Load = Callable[[Callable[[TypedModel], TypedModel], list[str]], Evaluator]
"""Loads the rewritten model, changed by a function, with more values fetched."""


@dataclass(frozen=True, slots=True)
class Selection:
    """One node that selects.

    Attributes:
        op: Its operator.
        node: Its name.
        index: The value that says what is selected.
        axis: Along which.
        reads: The floats of the original that it compares, constants aside.
    """

    op: str
    node: str
    index: str
    axis: int
    reads: tuple[str, ...]

    @property
    def told(self) -> str:
        """The input by which a model is told a selection."""
        return f"{self.index}/told"

    def compared(self, original: Any, rewritten: Any) -> SelectionComparison:
        """Return how far two selections agree: places that hold the same, or the same rows."""
        a, b = np.asarray(original), np.asarray(rewritten)
        # operators: the two whose selections are sets of places
        if self.op in ("NonZero", "NonMaxSuppression"):
            rows = (each.T if self.op == "NonZero" else each for each in (a, b))
            first, other = (set(map(tuple, each.tolist())) for each in rows)
            chosen, same = len(first | other), len(first & other)
        else:
            chosen = max(a.size, b.size)
            same = int(np.count_nonzero(a == b)) if a.shape == b.shape else 0
        return SelectionComparison(self.node, self.op, self.index, chosen, same)


@dataclass(frozen=True, slots=True)
class SelectionComparison:
    """What a node selects in both models, over all feeds.

    Attributes:
        node: Its name.
        op: Its operator.
        value: The value that says what it selects.
        chosen: How many elements were chosen.
        same: How many of them in both models; place by place where they have an order.
        told: Whether outputs were compared with the original's selection in a feed.
    """

    node: str
    op: str
    value: str
    chosen: int = 0
    same: int = 0
    told: bool = False

    @property
    def agreement(self) -> float:
        """The share that agrees."""
        return self.same / self.chosen if self.chosen else 1.0

    def merged(self, other: SelectionComparison) -> SelectionComparison:
        """Return both as one."""
        chosen, same = self.chosen + other.chosen, self.same + other.same
        return replace(self, chosen=chosen, same=same, told=self.told or other.told)

    def __str__(self) -> str:
        """Return how far the selections agree."""
        name = f"selection {self.op} {self.node or self.value}"
        told = "; outputs are compared for the original's choices" if self.told else ""
        return f"{name}: {share(self.agreement, 1)} of {self.chosen:,} choices agree{told}"


@dataclass(frozen=True, slots=True)
class Told:
    """What the rewritten model makes of a feed with the original's selections.

    Attributes:
        feeds: The feed, and the original's selections by the names of the inputs that take them.
        outputs: The rewritten model's outputs.
    """

    feeds: Feeds
    outputs: Values


class ToldModel:
    """The rewritten model, told what to select; loaded when it is first asked for."""

    def __init__(self, before: TypedModel, after: ir.Model, limits: Tolerances, load: Load) -> None:
        """Find what both models select; nothing is loaded yet.

        Args:
            before: The original.
            after: The rewritten model.
            limits: What the numbers that a selection compares may differ by.
            load: Loads the rewritten model.
        """
        self.selections = tuple(_selections_of(before, after))
        self.names = [selection.index for selection in self.selections]
        there = {*names_in(after.graph)}
        reads = (name for selection in self.selections for name in selection.reads)
        self.reads = list(dict.fromkeys(name for name in reads if name in there))
        self._limits, self._load = limits, load

    def agreement(self, original: Values, rewritten: Values) -> list[SelectionComparison]:
        """Compare the selections of one feed."""
        return [s.compared(original[s.index], rewritten[s.index]) for s in self.selections]

    def told(self, fitted: Feeds, original: Values, outputs: Collection[str]) -> Told | None:
        """Run the rewritten model with the original's selections.

        Args:
            fitted: The feed, in the types of the rewritten model.
            original: What the original selects, and what its selections compare.
            outputs: The names of the outputs.

        Returns:
            What it gives; None if it does not run so, or selects by other numbers.
        """
        session = self.session
        if session is None:
            return None
        given = {s.told: original[s.index] for s in self.selections}
        feeds = {**fitted, **{n: value for n, value in given.items() if n in session.inputs}}
        try:
            results = session.run(feeds, [*outputs, *self.reads, *_own(self.selections, session)])
        except AmpError:
            return None
        same = all(self._is_alike(s, original, results) for s in self.selections)
        return Told(feeds, {name: results[name] for name in outputs}) if same else None

    def _is_alike(self, selection: Selection, original: Values, results: Values) -> bool:
        """Tell whether both models select by the same numbers, or, where none are, the same."""
        comparers = [Comparer(name, self._limits) for name in selection.reads if name in results]
        for comparer in comparers:
            comparer.add(original[comparer.name], results[comparer.name])
        if not comparers:
            own = results.get(f"{selection.index}/own")
            return selection.compared(original[selection.index], own).agreement >= AGREEMENT
        return all(comparer.result([]).ok for comparer in comparers)

    @cached_property
    def session(self) -> Evaluator | None:
        """The rewritten model, told what to select; None if it cannot be loaded."""
        own = [f"{s.index}/own" for s in self.selections]
        try:
            return self._load(self._changed, [*self.reads, *own])
        except AmpError:
            return None

    def _changed(self, model: TypedModel) -> TypedModel:
        """Return a model with an input for each selection, in place of what it selects itself.

        That is called "VALUE/own". The values of TopK are those of the scores at the places that
        it is told.
        """
        told = model.copy().model
        named = {name: node for node in told.graph if (name := _index_of(node))}
        for selection in self.selections:
            _tell_selection(told, named[selection.index], selection)
        return TypedModel(told, spare=True)


def _own(selections: Collection[Selection], session: Evaluator) -> list[str]:
    """Return what a told model selects itself, where nothing else says by which numbers."""
    return [f"{s.index}/own" for s in selections if not s.reads and s.told in session.inputs]


def _selections_of(before: TypedModel, after: ir.Model) -> Iterator[Selection]:
    """Yield the nodes of a main graph that select by floats, and that both models have."""
    kept = {name: _spelled(node) for node in after.graph if (name := _index_of(node))}
    old = after.graph.opset_imports.get("", 0) < _GATHERS_FROM
    for node in before.model.graph:
        name, reads = _index_of(node), _reads(node, before)
        gives_values = _INDEX.get(operator(node)) == 1
        if reads is None or (old and gives_values) or kept.get(name) != _spelled(node):
            continue
        axis = node.attributes.get_int("axis", -1 if gives_values else 0)
        yield Selection(node.op_type, node.name or "", name, axis, reads)


def _spelled(node: ir.Node) -> tuple[str, Mapping[str, Any]]:
    """Return the operator and the attributes of a node."""
    return node.op_type, {name: attribute.value for name, attribute in node.attributes.items()}


def _index_of(node: ir.Node) -> str:
    place = _INDEX.get(operator(node), len(node.outputs))
    return (node.outputs[place].name or "") if place < len(node.outputs) else ""


def _reads(node: ir.Node, model: TypedModel) -> tuple[str, ...] | None:
    """Return the names of the floats that decide a selection; None if floats do not."""
    read = [value for value in node.inputs[:2] if value is not None]
    if operator(node) not in _INDEX or not read:
        return None
    maker = read[0].producer()
    if model.types.get(read[0]) == "tensor(bool)":
        read = [] if maker is None or operator(maker) not in _COMPARES else [*maker.inputs]
        if read and not all(model.types.get(value) in FLOAT32_TYPES for value in read if value):
            return None
    elif model.types.get(read[0]) not in FLOAT32_TYPES:
        return None
    floats = [v for v in read if v is not None and model.types.get(v) in FLOAT32_TYPES]
    return tuple(v.name or "" for v in floats if known_tensor(v) is None)


def _tell_selection(model: ir.Model, node: ir.Node, selection: Selection) -> None:
    index = node.outputs[_INDEX[node.op_type]]
    told = ir.Value(name=selection.told, type=ir.TensorType(ir.DataType.INT64))
    model.graph.inputs.append(told)
    passed = ir.Node("", "Identity", [told], name=f"{selection.told}/Identity")
    take_over(index, passed.outputs[0], f"{selection.index}/own")
    added = [passed]
    if _INDEX[node.op_type]:
        values, axis = node.outputs[0], ir.AttrInt64("axis", selection.axis)
        taken = ir.Node("", "GatherElements", [node.inputs[0], told], [axis])
        taken.name = f"{selection.told}/GatherElements"
        take_over(values, taken.outputs[0], f"{values.name}/own")
        added.append(taken)
    node.append(added)


def take_over(old: ir.Value, new: ir.Value, renamed: str) -> None:
    """Let a value take the name, the readers and the places among outputs of another one."""
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    new.type, new.shape, new.name = old.type, old.shape, old.name
    old.name = renamed
