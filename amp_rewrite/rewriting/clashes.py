"""Nodes that read two types where their operator takes one, or one that it does not take."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from amp_rewrite.dtypes import FLOAT32, LOW
from amp_rewrite.graph.elements import tensor
from amp_rewrite.graph.flat import ABSENT, FlatGraph
from amp_rewrite.graph.infer import FlatTypes
from amp_rewrite.graph.ports import Ports, is_fixed, ports_of, schema_variable
from amp_rewrite.graph.schemas import Schema

WIDE = tensor(FLOAT32.number)
"""The type of a float32 tensor, as inference says it."""

LOW_TYPES = {tensor(dtype.number): dtype for dtype in LOW.values()}
"""The same of 16-bit tensors -> what they are."""

DENSE = "tensor("
"""How the types of tensors begin, and no others."""


@dataclass(frozen=True, slots=True)
class Clash:
    """A node that is given two types where its operator takes one, or one that it does not take."""

    node: int
    variable: str
    ports: Ports
    types: tuple[str, ...]


def clashes_of(flat: FlatGraph, types: FlatTypes) -> list[Clash]:
    """Return each type variable of a node that is given more than one type."""
    clashes: list[Clash] = []
    for node in range(flat.n_nodes):
        called, inputs, opset = flat.called(node), flat.inputs_of(node), flat.opset_of(node)
        count = len(flat.outputs_of(node))
        ports = ports_of(called.domain, called.op_type, opset, len(inputs), count)
        if ports.schema is None:
            continue
        types_of: dict[str, list[str]] = {}
        for name, value in zip(ports.inputs, inputs, strict=True):
            type_ = None if value == ABSENT else types[value]
            if type_ is not None and type_.startswith(DENSE):
                types_of.setdefault(name, []).append(type_)
        for name, all_types in types_of.items():
            distinct = tuple(dict.fromkeys(all_types))
            if len(distinct) > 1 or _is_refused(ports.schema, name, all_types[0]):
                clashes.append(Clash(node, name, ports, distinct))
    return clashes


def _is_refused(schema: Schema, variable: str, type_: str) -> bool:
    """Tell whether an operator takes float32 in a place where it is given 16 bits, and not those.

    Operators of ai.onnx.ml have no float16, and scales of Resize are float32 whatever it resizes.
    """
    admitted = admitted_types(schema, variable)
    return type_ in LOW_TYPES and type_ not in admitted and WIDE in admitted


def admitted_types(schema: Schema, variable: str) -> Collection[str]:
    """Return the types that a variable of an operator may have; a fixed one is its only type."""
    if is_fixed(variable):
        return (variable,)
    return schema.variables.get(schema_variable(variable), ())


def reads(flat: FlatGraph, clash: Clash) -> list[tuple[int, int]]:
    """Return the inputs of a clash, as their numbers and values."""
    inputs = zip(clash.ports.inputs, flat.inputs_of(clash.node), strict=True)
    named = enumerate(inputs)
    return [(k, v) for k, (name, v) in named if v != ABSENT and name == clash.variable]


def makes(flat: FlatGraph, clash: Clash) -> list[int]:
    """Return the results that have the type of a clash."""
    results = zip(clash.ports.outputs, flat.outputs_of(clash.node), strict=True)
    return [value for name, value in results if name == clash.variable]
