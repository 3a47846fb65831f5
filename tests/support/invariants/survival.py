"""Invariants of what a rewrite must leave alone: nodes, descriptions, recorded facts, functions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import onnx_ir as ir

from amp_rewrite.dtypes import LOW
from amp_rewrite.graph import elements, schemas
from amp_rewrite.graph.io.write import ModelWriter
from amp_rewrite.graph.metadata_keys import EXPONENTS_KEY, GIVEN_NAME_KEY, STEP_KEY, TARGET_KEY
from invariants.violation import (
    Violation,
    is_added,
    is_added_cast,
    named_subgraphs,
    place,
    scope_of,
)

_SPARSE = (ir.AttributeType.SPARSE_TENSOR, ir.AttributeType.SPARSE_TENSORS)

_NUMBERS_AND_STRINGS = frozenset(
    {
        ir.AttributeType.INT,
        ir.AttributeType.INTS,
        ir.AttributeType.FLOAT,
        ir.AttributeType.FLOATS,
        ir.AttributeType.STRING,
        ir.AttributeType.STRINGS,
    }
)
"""The types of attributes whose values can be compared as they are."""

_TYPE_ATTRIBUTES = frozenset(
    {"to", "dtype", "value", "stash_type", "output_dtype", "output_datatype", "type"}
)
"""Attributes of known operators that name or carry an element type, and so follow the paint."""

# operators: what the rewrite itself removes.
_REPLACEABLE = frozenset({"Cast", "Constant"})
"""A Cast may become superfluous, and a Constant an initializer of another type."""

_MODEL_FIELDS = (
    "ir_version",
    "producer_name",
    "producer_version",
    "domain",
    "model_version",
    "doc_string",
    "metadata_props",
    "opset_imports",
)


def check_metadata(original: ir.Model, rewritten: ir.Model) -> Iterator[Violation]:
    """The model's and the main graph's names, versions, doc strings and metadata survive."""
    for field in _MODEL_FIELDS:
        before, after = getattr(original, field), getattr(rewritten, field)
        if field == "opset_imports" and "" not in before:
            after = {domain: version for domain, version in after.items() if domain}  # for Casts
        if field == "metadata_props":
            before, after = _without_rewrite(before), _without_rewrite(after)
        if before != after:
            yield Violation("metadata", field, f"was {before!r}, is {after!r}")
    yield from _compare_descriptions("metadata", "graph", original.graph, rewritten.graph)
    if original.graph.name != rewritten.graph.name:
        message = f"was {original.graph.name!r}, is {rewritten.graph.name!r}"
        yield Violation("metadata", "graph name", message)


def _without_rewrite(metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return a model's metadata without what a rewrite adds: target, exponents, a precision."""
    kept = {k: entry for k, entry in metadata.items() if k not in (TARGET_KEY, EXPONENTS_KEY)}
    if STEP_KEY not in kept:
        return dict(kept)
    description = json.loads(kept[STEP_KEY])
    description.pop("precision", None)
    return {**kept, STEP_KEY: description}


def _compare_descriptions(
    invariant: str,
    where: str,
    old: ir.Graph | ir.Node | ir.Value,
    new: ir.Graph | ir.Node | ir.Value,
) -> Iterator[Violation]:
    if (old.doc_string or "") != (new.doc_string or ""):
        yield Violation(
            invariant, where, f"doc string was {old.doc_string!r}, is {new.doc_string!r}"
        )
    lost = {k: v for k, v in old.metadata_props.items() if new.metadata_props.get(k) != v}
    if lost:
        yield Violation(invariant, where, f"metadata lost: {lost}")


def check_functions(original: ir.Model, rewritten: ir.Model) -> Iterator[Violation]:
    """Model-local functions survive as they are."""
    for identifier, function in original.functions.items():
        where = "::".join(part for part in identifier if part)
        after = rewritten.functions.get(identifier)
        if after is None:
            yield Violation("functions", where, "is gone")
        elif _bytes(function) != _bytes(after):
            yield Violation("functions", where, "has changed")


def _bytes(function: ir.Function) -> bytes:
    return ir.serde.serialize_function(function).SerializeToString(deterministic=True)


def check_opaque_parts(original: ir.Model, rewritten: ir.Model) -> Iterator[Violation]:
    """What onnx_ir has no place for survives: training_info, devices."""
    headers = ModelWriter(original).header(), ModelWriter(rewritten).header()
    for part in ("training_info", "configuration"):
        before, after = ([m.SerializeToString() for m in getattr(h, part)] for h in headers)
        if before != after:
            message = f"had {len(before)} entries, has {len(after)} or others"
            yield Violation("opaque-parts", part, message)


def check_nodes(original: ir.Model, rewritten: ir.Model) -> Iterator[Violation]:
    """Every node survives with its description, attributes and inputs, and none appears.

    Exempt: Casts and Constants, which the pass may retarget or convert; attributes of known
    operators that carry an element type. Custom operators keep the types of their inputs and
    outputs.
    """
    return _compare_graphs("", original.graph, rewritten.graph, original)


def _compare_graphs(
    scope: str, old: ir.Graph, new: ir.Graph, model: ir.Model
) -> Iterator[Violation]:
    if scope:
        yield from _compare_descriptions("nodes", scope, old, new)
    unmatched = {node for node in new if node.op_type not in _REPLACEABLE and not is_added(node)}
    producers = _producers(new)
    for node in old:
        if node.op_type in _REPLACEABLE:
            continue
        where = place(scope, node.name or node.op_type)
        twin = _twin(node, producers)
        if twin is None:
            yield Violation("nodes", where, f"{node.op_type} is gone")
            continue
        unmatched.discard(twin)
        yield from _compare_nodes(where, node, twin, model)
        inner = dict(named_subgraphs(twin))
        for attribute, subgraph in named_subgraphs(node):
            if attribute in inner:
                path = scope_of(scope, node, attribute)
                yield from _compare_graphs(path, subgraph, inner[attribute], model)
    for node in new:
        if node in unmatched:
            where = place(scope, node.name or node.op_type)
            yield Violation("nodes", where, f"{node.op_type} has appeared")


def _producers(graph: ir.Graph) -> dict[tuple[str, str, str], ir.Node]:
    """Map (domain, operator, output name) to nodes; an output that was cast keeps its old name."""
    nodes: dict[tuple[str, str, str], ir.Node] = {}
    for node in graph:
        source: ir.Node | None = node
        while source is not None and is_added_cast(source):
            source = source.inputs[0].producer() if source.inputs[0] is not None else None
        if source is None:
            continue
        for value in (*node.outputs, *source.outputs):
            nodes.setdefault((source.domain, source.op_type, value.name or ""), source)
    return nodes


def _twin(node: ir.Node, producers: dict[tuple[str, str, str], ir.Node]) -> ir.Node | None:
    for value in node.outputs:
        twin = producers.get((node.domain, node.op_type, value.name or ""))
        if value.name and twin is not None:
            return twin
    return None


def _compare_nodes(where: str, old: ir.Node, new: ir.Node, model: ir.Model) -> Iterator[Violation]:
    yield from _compare_descriptions("nodes", where, old, new)
    if old.name not in (new.name, old.meta.get(GIVEN_NAME_KEY)):
        yield Violation("nodes", where, f"is now called {new.name}")
    if old.overload != new.overload:
        yield Violation("nodes", where, f"overload was {old.overload!r}, is {new.overload!r}")
    if len(old.inputs) != len(new.inputs):
        yield Violation("nodes", where, f"had {len(old.inputs)} inputs, has {len(new.inputs)}")
    opset = model.graph.opset_imports.get(old.domain, 1)
    opaque = schemas.find(old.domain, old.op_type, opset) is None
    for name in {**old.attributes, **new.attributes}:
        attributes = old.attributes.get(name), new.attributes.get(name)
        if not _same_attribute(*attributes, opaque=opaque):
            yield Violation(
                "nodes", where, f"attribute {name} was {attributes[0]}, is {attributes[1]}"
            )
    if opaque:
        yield from _compare_types(where, old, new)


def _same_attribute(old: ir.Attr | None, new: ir.Attr | None, *, opaque: bool) -> bool:
    if old is new:
        return True
    present = old or new
    if not opaque and present is not None and present.name in _TYPE_ATTRIBUTES:
        return True
    if old is None or new is None or old.type != new.type:
        return False
    if old.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
        return True  # compared node by node
    if old.type == ir.AttributeType.UNDEFINED:
        return True  # a custom operator's that names no type, of which nothing is read
    if old.is_ref() or new.is_ref():
        return old.ref_attr_name == new.ref_attr_name
    if old.type in _NUMBERS_AND_STRINGS and old.value == new.value:
        return True
    if old.type in _SPARSE:  # messages, which onnx_ir does not write
        return bool(old.value == new.value)
    return _attribute_bytes(old) == _attribute_bytes(new)


def _attribute_bytes(attribute: ir.Attr) -> bytes:
    return ir.serde.serialize_attribute(attribute).SerializeToString(deterministic=True)


def _compare_types(where: str, old: ir.Node, new: ir.Node) -> Iterator[Violation]:
    pairs = (
        *zip(old.inputs, new.inputs, strict=False),
        *zip(old.outputs, new.outputs, strict=False),
    )
    for before, after in pairs:
        if before is None or after is None:
            continue
        types = elements.from_ir(before.type), elements.from_ir(after.type)
        if None not in types and types[0] != types[1]:
            message = f"{before.name} was {types[0]}, {after.name} is {types[1]}"
            yield Violation("nodes", where, message)


def check_value_infos(original: ir.Model, rewritten: ir.Model) -> Iterator[Violation]:
    """What the file records of a value survives: shape, description, and type but for floats.

    A value of the same name in the same scope must keep its shape and may change from one float
    type to a low one only.
    """
    after = dict(_values("", rewritten.graph))
    for (scope, name), old in _values("", original.graph):
        new = after.get((scope, name))
        if new is None:
            continue
        where = place(scope, name)
        yield from _compare_descriptions("value-infos", where, old, new)
        if old.shape is not None and old.shape != new.shape:
            message = f"shape was {old.shape}, is {new.shape}"
            yield Violation("value-infos", where, message)
        yield from _compare_recorded(where, old, new)


def _compare_recorded(where: str, old: ir.Value, new: ir.Value) -> Iterator[Violation]:
    before, after = elements.from_ir(old.type), elements.from_ir(new.type)
    if before is None or before == after:
        return
    allowed = {elements.with_element(before, low) for low in LOW.values()}
    if before not in elements.FLOAT_TYPES or after not in allowed:
        yield Violation("value-infos", where, f"type was {before}, is {after}")


def _values(scope: str, graph: ir.Graph) -> Iterator[tuple[tuple[str, str], ir.Value]]:
    for value in (*graph.inputs, *graph.initializers.values()):
        yield (scope, value.name or ""), value
    for node in graph:
        for value in node.outputs:
            if value.name:
                yield (scope, value.name), value
        for attribute, subgraph in named_subgraphs(node):
            yield from _values(scope_of(scope, node, attribute), subgraph)
