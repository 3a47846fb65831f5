"""ONNX type strings: the notation in which element types are computed.

Schemas and kernel tables speak of types as strings such as `tensor(float)` and
`seq(tensor(float16))`; inference and painting use the same notation, so that no table has to be
translated (source: the type strings of `onnx.defs.OpSchema`).
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from onnx import TensorProto

from amp_rewrite.dtypes import FLOAT32, OTHERS, DType

if TYPE_CHECKING:
    import onnx_ir as ir

_NAMES: dict[int, str] = {
    number: name.lower() for name, number in TensorProto.DataType.items() if number
}
_NUMBERS: dict[str, int] = {name: number for number, name in _NAMES.items()}

NUMBERS: frozenset[int] = frozenset(TensorProto.DataType.values())
"""The numbers of all element types; that of UNDEFINED is one, too."""

_RETYPABLE = ("tensor({})", "seq(tensor({}))", "optional(tensor({}))", "optional(seq(tensor({})))")


def retypable(*dtypes: DType) -> frozenset[str]:
    """Return every type whose element is one of some types and that a rewrite may retype."""
    return frozenset(p.format(dtype.onnx) for p in _RETYPABLE for dtype in dtypes)


FLOAT32_TYPES: frozenset[str] = retypable(FLOAT32)
"""Every type whose element is float32 and that a rewrite may retype."""

FLOAT_TYPES: frozenset[str] = retypable(FLOAT32, *OTHERS)
"""Every type of floats that a rewrite may retype, those of other precisions included."""


def tensor(number: int) -> str:
    """Return the type string of a dense tensor, for example `tensor(float)`."""
    return f"tensor({_NAMES[number]})"


@cache
def element_named(name: str) -> str | None:
    """Return the type string of tensors whose elements have a type, such as "float32"."""
    number = _NUMBERS.get({"float32": "float", "float64": "double"}.get(name, name))
    return None if number is None else tensor(number)


@cache
def bits(number: int) -> int:
    """Return how many bits an element takes; the name of its type says so."""
    digits = re.search(r"\d+", _NAMES[number])
    return int(digits[0]) if digits else _UNNUMBERED[_NAMES[number]]


_UNNUMBERED = {"bool": 8, "double": 64, "float": 32}


@cache
def element(type_string: str) -> int | None:
    """Return the element type inside a type string, a number of TensorProto.DataType, or None."""
    name = type_string.rsplit("(", 1)[-1].rstrip(")")
    return _NUMBERS.get(name)


@cache
def with_element(type_string: str, dtype: DType) -> str:
    """Return `type_string` with its element replaced: the container stays as it is."""
    head = type_string.rsplit("(", 1)[0]
    return f"{head}({dtype.onnx}" + ")" * type_string.count(")")


def from_ir(type_: ir.TypeProtocol | None) -> str | None:
    """Return the type string of an onnx_ir type; None for an absent or undefined one."""
    import onnx_ir as ir

    if type_ is None:
        return None
    if isinstance(type_, ir.TensorType):
        name = _NAMES.get(type_.dtype)
        return None if name is None else f"tensor({name})"
    kind = {ir.SequenceType: "seq", ir.OptionalType: "optional"}.get(type(type_))  # pyright: ignore[reportArgumentType,reportCallIssue]
    if kind is None:
        return None
    inner = from_ir(type_.elem_type)  # pyright: ignore[reportArgumentType] a container's element is a type
    return None if inner is None else f"{kind}({inner})"


def set_element(value: ir.Value, dtype: DType) -> None:
    """Give the recorded type of a value another element; a value without one is left without."""
    recorded = from_ir(value.type)
    if recorded is not None:
        type_ = to_ir(with_element(recorded, dtype))
        if type_ is not None and value.type is not None:
            type_.denotation = value.type.denotation
        value.type = type_


def to_ir(type_string: str) -> ir.TypeProtocol | None:
    """Return the onnx_ir type that a type string denotes; None for maps and opaque types."""
    import onnx_ir as ir

    if type_string.startswith("seq("):
        inner = to_ir(type_string[4:-1])
        return None if inner is None else ir.SequenceType(inner)
    if type_string.startswith("optional("):
        inner = to_ir(type_string[9:-1])
        return None if inner is None else ir.OptionalType(inner)
    number = element(type_string)
    if number is None:
        return None
    return ir.TensorType(ir.DataType(number))
