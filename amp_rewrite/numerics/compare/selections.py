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
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import AmpError
from amp_rewrite.graph.elements import FLOAT32_TYPES
from amp_rewrite.graph.names import names_in
from amp_rewrite.graph.tensors import known_tensor
from amp_rewrite.graph.traits import operator
from amp_rewrite.numerics.compare.distance import Comparer, Tolerances, add_feed
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

Values = Mapping[str, Any]
Load = Callable[[Callable[[TypedModel], TypedModel], list[str]], Evaluator]
"""Loads the rewritten model, changed by a function, with more values fetched."""


@dataclass(frozen=True, slots=True)
class Selection:
    """A node that selects: `index` is the value that says what, `reads` the floats it compares."""

    op: str
    node: str
    index: str
    axis: int
    reads: tuple[str, ...]

    @property
    def told(self) -> str:
        """The input by which a model is told a selection."""
        return f"{self.index}/told"


class ToldModel:
    """The rewritten model, told what to select; loaded when it is first asked for."""

    def __init__(self, before: TypedModel, after: ir.Model, limits: Tolerances, load: Load) -> None:
        """Find what both models select.

        `limits` are what the numbers that a selection compares may differ by.
        """
        self.selections = tuple(_selections_of(before, after))
        self.names = [selection.index for selection in self.selections]
        there = {*names_in(after.graph)}
        reads = (name for selection in self.selections for name in selection.reads)
        self.reads = list(dict.fromkeys(name for name in reads if name in there))
        self._limits, self._load = limits, load

    def differing(self, original: Values, rewritten: Values) -> list[str]:
        """Return the nodes that select other elements of one feed."""
        return [
            f"{each.op} {each.node or each.index}"
            for each in self.selections
            if not np.array_equal(original[each.index], rewritten[each.index])
        ]

    def run(
        self, fitted: Feeds, original: Values, outputs: Collection[str]
    ) -> tuple[Feeds | None, Values]:
        """Run the rewritten model with the original's selections, if both select by the same.

        `original` has what the original selects, and what its selections compare. Returned are
        the feeds, None if both select by other numbers, and the outputs.
        """
        if self.session is None:
            return None, {}
        given = {
            s.told: original[s.index] for s in self.selections if s.told in self.session.inputs
        }
        feeds = {**fitted, **given}
        try:
            results = self.session.run(feeds, [*outputs, *self.reads])
        except AmpError:
            return None, {}
        for selection in self.selections:
            compared = [name for name in selection.reads if name in results]
            comparers = {name: Comparer(name, self._limits) for name in compared}
            add_feed(comparers, original, results)
            if not compared or not all(c.result().ok for c in comparers.values()):
                return None, {}
        return feeds, {name: results[name] for name in outputs}

    @cached_property
    def session(self) -> Evaluator | None:
        """The rewritten model, told what to select; None if it cannot be loaded."""
        try:
            return self._load(self._changed, self.reads)
        except AmpError:
            return None

    def _changed(self, model: TypedModel) -> TypedModel:
        """Return a model with an input for each selection, in place of what it selects itself.

        The values of TopK are those of the scores at the places that it is told.
        """
        told = model.copy().model
        named = {name: node for node in told.graph if (name := _index_of(node))}
        for selection in self.selections:
            _tell_selection(told, named[selection.index], selection)
        return TypedModel(told, spare=True)


def _selections_of(before: TypedModel, after: ir.Model) -> Iterator[Selection]:
    """Yield the nodes of a main graph that select by floats, and that both models have."""
    kept = {name: _spelled(node) for node in after.graph if (name := _index_of(node))}
    for node in before.model.graph:
        name, reads = _index_of(node), _reads(node, before)
        gives_values = _INDEX.get(operator(node)) == 1
        if reads is None or kept.get(name) != _spelled(node):
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
    told = ir.Value(name=selection.told, type=ir.TensorType(ir.DataType.INT64))
    model.graph.inputs.append(told)
    place = _INDEX[node.op_type]
    added = [ir.Node("", "Identity", [told], name=f"{selection.told}/Identity")]
    _take_over(node.outputs[place], added[0].outputs[0])
    if place:
        axis = ir.AttrInt64("axis", selection.axis)
        added.append(ir.Node("", "GatherElements", [node.inputs[0], told], [axis]))
        added[1].name = f"{selection.told}/GatherElements"
        _take_over(node.outputs[0], added[1].outputs[0])
    node.append(added)


def _take_over(old: ir.Value, new: ir.Value) -> None:
    """Let a value take the name, the readers and the places among outputs of another one."""
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    new.type, new.shape, new.name = old.type, old.shape, old.name
    old.name = f"{old.name}/own"
