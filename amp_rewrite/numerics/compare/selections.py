"""Which elements operators select, and a model that is told which to take.

TopK, NonMaxSuppression, ArgMax and NonZero choose by comparing numbers. A near tie that rounding
swaps puts another box in each place behind it, and none of the numbers compared place by place says
that both are right. So the values are compared for the original's selection, and the selections by
how far apart the numbers are that they choose between.

Evidence: ssd_nms (docs/measured.md), whose boxes change places: cosine .946 place by place; with,
the values are compared for the original's choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from amp_rewrite.graph.elements import FLOAT32_TYPES
from amp_rewrite.graph.infer import Types
from amp_rewrite.graph.names import place
from amp_rewrite.graph.traits import operator
from amp_rewrite.graph.traverse import nodes_in, subgraphs
from amp_rewrite.numerics.emulate.typed_model import TypedModel

# operators: which output says what was selected is asked here alone
_INDEX: Mapping[str, int] = {
    "TopK": 1,
    "NonMaxSuppression": 0,
    "ArgMax": 0,
    "ArgMin": 0,
    "NonZero": 0,
}
"""Operator that selects -> which of its outputs says what."""

# operators: only these have an order, so that a distance says how close the choice was
_COMPARES = frozenset({"Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
"""Operators of which NonZero reads what is true."""

_GATHERS_FROM = 11
"""The opset from which GatherElements is there, which takes the values of a selection."""


@dataclass(frozen=True, slots=True)
class Selection:
    """One node that selects.

    Attributes:
        op: Its operator.
        node: Its name.
        index: The value that says what is selected.
        axis: Along which.
        reads: The values of the original that it compares, and what else decides: of TopK, ArgMax
            and ArgMin the scores; of NonZero both operands of a comparison, or the floats that it
            reads, or nothing; of NonMaxSuppression boxes, scores and thresholds, "" for none.
        in_order: Whether the places of a selection have an order.
    """

    op: str
    node: str
    index: str
    axis: int
    reads: tuple[str, ...]
    in_order: bool = True
    corners: bool = True
    """Whether boxes are given by two corners; otherwise by center and size."""

    @property
    def own(self) -> str:
        """What the model's own selection is called where it is told another one."""
        return f"{self.index}/own"

    @property
    def told(self) -> str:
        """The input by which a model is told a selection."""
        return f"{self.index}/told"


def selections_of(before: TypedModel, after: ir.Model) -> tuple[Selection, ...]:
    """Return the nodes of a main graph that select by floats, and that both models have."""
    kept = {(node.op_type, name) for node in after.graph if (name := _index_of(node))}
    selections: list[Selection] = []
    for node in before.model.graph:
        name = _index_of(node)
        if not name or (node.op_type, name) not in kept:
            continue
        reads = _reads(node, before.types)
        if reads is not None:
            attributes = node.attributes
            selections.append(
                Selection(
                    op=node.op_type,
                    node=node.name or "",
                    index=name,
                    axis=attributes.get_int("axis", -1 if node.op_type == "TopK" else 0),
                    reads=reads,
                    in_order=bool(attributes.get_int("sorted", 1)),
                    corners=not attributes.get_int("center_point_box", 0),
                )
            )
    return tuple(selections)


def node_that_selects_inside(model: ir.Model) -> str | None:
    """Return a node of the main graph in whose bodies a node selects: these cannot be told."""
    for node in model.graph:
        if any(subgraphs(node)) and any(selects(inner) for inner in nodes_in(node)):
            return place(node)
    return None


def selects(node: ir.Node) -> bool:
    """Tell whether a node selects, by numbers of any type."""
    return operator(node) in _INDEX


def _index_of(node: ir.Node) -> str:
    place = _INDEX.get(operator(node), len(node.outputs))
    return (node.outputs[place].name or "") if place < len(node.outputs) else ""


def _reads(node: ir.Node, types: Types) -> tuple[str, ...] | None:
    """Return the names of what decides a selection; None if floats do not."""
    inputs = list(node.inputs)
    first = inputs[0] if inputs else None
    if first is None:
        return None
    if node.op_type == "NonMaxSuppression":
        names = ["" if value is None else value.name or "" for value in inputs]
        return tuple([*names, "", "", ""][:5])
    if types.get(first) in FLOAT32_TYPES:
        return (first.name or "",)
    if node.op_type != "NonZero":
        return None
    source = first.producer()
    if source is None or types.get(first) != "tensor(bool)":
        return None
    if source.domain == "" and source.op_type in _COMPARES:
        sides = [value for value in source.inputs if value is not None]
        if all(types.get(value) in FLOAT32_TYPES for value in sides):
            return tuple(value.name or "" for value in sides)
        return None
    return ()


def told_selections(model: TypedModel, selections: Iterable[Selection]) -> TypedModel:
    """Return a model with an input for each selection, in place of what it would select itself.

    What it does select is called `Selection.own`. The values of TopK are those of the scores at the
    places that it is told.
    """
    told = model.copy().model
    named = {name: node for node in told.graph if (name := _index_of(node))}
    for selection in selections:
        node = named.get(selection.index)
        if node is not None:
            _tell_selection(told, node, selection)
    return TypedModel(told, spare=True)


def _tell_selection(model: ir.Model, node: ir.Node, selection: Selection) -> None:
    index = node.outputs[_INDEX[node.op_type]]
    values = node.outputs[0] if node.op_type == "TopK" else None
    if values is not None and model.graph.opset_imports.get("", 0) < _GATHERS_FROM:
        return
    told = ir.Value(name=selection.told, type=ir.TensorType(ir.DataType.INT64))
    model.graph.inputs.append(told)
    passed = ir.Node("", "Identity", [told], name=f"{selection.told}/Identity")
    take_over(index, passed.outputs[0], selection.own)
    added = [passed]
    if values is not None:
        axis = ir.AttrInt64("axis", selection.axis)
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
