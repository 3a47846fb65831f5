"""The allowed statements of an op list's entry about an operator, checked against the schemas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

import onnx.defs

from amp_rewrite import targets
from amp_rewrite.dtypes import LOW
from amp_rewrite.graph import schemas
from amp_rewrite.graph.elements import FLOAT32_TYPES, element_named
from amp_rewrite.graph.schemas import Schema
from amp_rewrite.oplists.entries import Condition, Custom, Entry

Trouble = tuple[str, str, str]
"""(what is wrong, what was found, what was expected)."""

_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "STRING": str,
    "STRINGS": str,
    "INT": int,
    "INTS": int,
    "FLOAT": (int, float),
    "FLOATS": (int, float),
}


def words(key: str) -> tuple[str, ...]:
    """Return the words for `precision` or `target`."""
    return (*(LOW if key == "precision" else targets.list_targets()), "any")


def operator(domain: str, name: object) -> Trouble | None:
    """Return what is wrong with an operator's name, or None; an unknown domain may hold any."""
    if not isinstance(name, str) or not name:
        return "an operator's name is not text", repr(name), "an operator's name, in quotes"
    names = schemas.names(domain)
    if name in names or not names:
        return None
    close = get_close_matches(name, sorted(names), n=3, cutoff=0.7)
    expected = " or ".join(close) or f"an operator of {domain or 'ai.onnx'}"
    return "unknown operator", f"{domain}::{name}" if domain else name, expected


def entry(list_entry: Entry) -> Iterator[Trouble]:
    """Yield what is wrong with an entry's opset range and conditions."""
    newest = schemas.newest_opset(list_entry.domain)
    since, until = list_entry.since, list_entry.until
    for key, opset in (("since", since), ("until", until)):
        if opset is not None and newest is not None and opset > newest:
            yield f"`{key}` is newer than every opset", str(opset), f"at most {newest}"
    if since is not None and until is not None and since > until:
        yield "empty opset range", f"{since} to {until}", "since <= until"
    if list_entry.custom is not None:
        yield from _custom(list_entry, list_entry.custom)
    if newest is not None:
        for condition in list_entry.when:
            yield from _condition(list_entry, condition)


def _custom(list_entry: Entry, custom: Custom) -> Iterator[Trouble]:
    if schemas.names(list_entry.domain):
        what = f"{list_entry.qualified} has a schema, which says what its ports are"
        yield what, "outputs or float32", "neither"
    for name in custom.outputs:
        if isinstance(name, str) and element_named(name) is None:
            yield "unknown type", name, "a type of elements, such as float32 or int64"


def _condition(list_entry: Entry, condition: Condition) -> Iterator[Trouble]:
    kinds = attributes(list_entry.domain, list_entry.op)
    if condition.attribute not in kinds:
        what = f"{list_entry.qualified} has no attribute of this name"
        yield what, condition.attribute, ", ".join(sorted(kinds)) or "no `when`"
        return
    kind = kinds[condition.attribute]
    for value in condition.values:
        if kind in _KINDS and (isinstance(value, bool) or not isinstance(value, _KINDS[kind])):
            yield f"impossible value of {condition.attribute}", repr(value), f"type {kind}"


@cache
def attributes(domain: str, op: str) -> Mapping[str, str]:
    """Return attribute -> type word, over every version of an operator ("" if unknown)."""
    if domain == schemas.CONTRIB_DOMAIN:
        schema = schemas.find(domain, op, 1)
        return dict.fromkeys(schema.attributes, "") if schema else {}
    kinds: dict[str, str] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.name == op and schema.domain == domain:
            declared: Any = schema.attributes
            kinds |= {name: a.type.name for name, a in declared.items()}
    return kinds


@cache
def float_operators() -> tuple[tuple[str, str], ...]:
    """Return (domain, op) of every operator that has a float32 port at some opset."""
    operators = {
        (s.domain, s.name)
        for s in onnx.defs.get_all_schemas_with_history()
        if has_float32(schemas.find(s.domain, s.name, s.since_version))
    }
    contrib = schemas.CONTRIB_DOMAIN
    operators |= {
        (contrib, n) for n in schemas.names(contrib) if has_float32(schemas.find(contrib, n, 1))
    }
    return tuple(sorted(operators))


def has_float32(schema: Schema | None) -> bool:
    """Return whether a port of the operator admits float32."""
    if schema is None:
        return False
    ports = (*schema.inputs, *schema.outputs)
    admitted = (schema.variables.get(p.variable, {p.variable}) for p in ports)
    return any(types & FLOAT32_TYPES for types in admitted)
