"""Output types that an attribute or a container decides, one rule per operator.

A rule takes the input types (None where absent or unknown), the attributes and the number of
outputs, and returns one type per output (None where unknown). Source of each: the operator's text
in https://onnx.ai/onnx/operators/.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from onnx import AttributeProto, TensorProto

from amp_rewrite.graph import elements
from amp_rewrite.graph.flat import Attribute

Attributes = Mapping[str, Attribute]
Inputs = Sequence[str | None]
Rule = Callable[[Inputs, Attributes, int], list[str | None]]


def inner(type_string: str) -> str | None:
    """Return what a sequence or optional type holds: "tensor(float)" for "seq(tensor(float))"."""
    head, _, tail = type_string.partition("(")
    return tail[:-1] if head in ("seq", "optional") else None


def attribute_type(attributes: Attributes, name: str) -> str | None:
    """Return the tensor type that an element-type attribute names; None if absent or undefined."""
    attribute = attributes.get(name)
    if attribute is None or attribute.kind != AttributeProto.INT or attribute.reference:
        return None  # Cast-1 has a string
    try:
        return elements.tensor(attribute.value)
    except KeyError:
        return None


def _by_attribute(name: str, default: int | None, follow: int | None) -> Rule:
    """Make a rule: the attribute's type, else that of input `follow`, else the default."""

    def rule(inputs: Inputs, attributes: Attributes, n_outputs: int) -> list[str | None]:
        type_string = attribute_type(attributes, name)
        if type_string is None and follow is not None and follow < len(inputs):
            type_string = inputs[follow]
        if type_string is None and default is not None:
            type_string = elements.tensor(default)
        return [type_string] * n_outputs

    return rule


def _constant(_: Inputs, attributes: Attributes, n_outputs: int) -> list[str | None]:
    for name, member in _CONSTANT_ATTRIBUTES.items():
        if name in attributes:
            return [elements.tensor(member)] * n_outputs
    if "value" in attributes:
        return [elements.tensor(attributes["value"].value.dtype)] * n_outputs
    return [None] * n_outputs  # sparse_value: the value's recorded type stands


_CONSTANT_ATTRIBUTES = {
    "value_float": TensorProto.FLOAT,
    "value_floats": TensorProto.FLOAT,
    "value_int": TensorProto.INT64,
    "value_ints": TensorProto.INT64,
    "value_string": TensorProto.STRING,
    "value_strings": TensorProto.STRING,
}


def _constant_of_shape(_: Inputs, attributes: Attributes, n_outputs: int) -> list[str | None]:
    member = attributes["value"].value.dtype if "value" in attributes else TensorProto.FLOAT
    return [elements.tensor(member)] * n_outputs


def _layer_norm(inputs: Inputs, attributes: Attributes, n_outputs: int) -> list[str | None]:
    statistics = attribute_type(attributes, "stash_type") or elements.tensor(TensorProto.FLOAT)
    return [inputs[0] if inputs else None, statistics, statistics][:n_outputs]


def _sequence_empty(_: Inputs, attributes: Attributes, n_outputs: int) -> list[str | None]:
    element_type = attribute_type(attributes, "dtype") or elements.tensor(TensorProto.FLOAT)
    return [f"seq({element_type})"] * n_outputs


def _sequence_of_first(inputs: Inputs, _: Attributes, n_outputs: int) -> list[str | None]:
    element_type = next((t for t in inputs if t is not None), None)
    return [element_type and f"seq({element_type})"] * n_outputs


def _same_as_first(inputs: Inputs, _: Attributes, n_outputs: int) -> list[str | None]:
    return [inputs[0] if inputs else None] * n_outputs


def _element_of_first(inputs: Inputs, _: Attributes, n_outputs: int) -> list[str | None]:
    first = inputs[0] if inputs else None
    return [first and (inner(first) or first)] * n_outputs


def _content_of_first(inputs: Inputs, _: Attributes, n_outputs: int) -> list[str | None]:
    """An optional's content; a tensor or sequence is its own content since opset 18."""
    first = inputs[0] if inputs else None
    is_optional = first is not None and first.startswith("optional(")
    return [inner(first) if is_optional and first else first] * n_outputs


def _optional(inputs: Inputs, attributes: Attributes, n_outputs: int) -> list[str | None]:
    if inputs and inputs[0] is not None:
        return [f"optional({inputs[0]})"] * n_outputs
    if "type" in attributes:
        element_type = attributes["type"].value
        return [element_type and f"optional({element_type})"] * n_outputs
    return [None] * n_outputs


_FLOAT = TensorProto.FLOAT

# operators: what their attributes say.
_NAMING: Mapping[str, tuple[str, int | None, int | None]] = {
    "Bernoulli": ("dtype", None, 0),
    "BitCast": ("to", None, None),
    "BlackmanWindow": ("output_datatype", _FLOAT, None),
    "Cast": ("to", None, None),
    "DequantizeLinear": ("output_dtype", None, 1),
    "EyeLike": ("dtype", None, 0),
    "HammingWindow": ("output_datatype", _FLOAT, None),
    "HannWindow": ("output_datatype", _FLOAT, None),
    "LayerNormalization": ("stash_type", _FLOAT, None),
    "MelWeightMatrix": ("output_datatype", _FLOAT, None),
    "Multinomial": ("dtype", TensorProto.INT32, None),
    "QuantizeLinear": ("output_dtype", TensorProto.UINT8, 2),
    "RandomNormal": ("dtype", _FLOAT, None),
    "RandomNormalLike": ("dtype", None, 0),
    "RandomUniform": ("dtype", _FLOAT, None),
    "RandomUniformLike": ("dtype", None, 0),
    "SequenceEmpty": ("dtype", _FLOAT, None),
}
"""Operator -> the attribute that names the type of its last result; without it, the default, or
the input whose type the result has."""

TYPED_LIKE_FIRST = frozenset(name for name, (_, _, follow) in _NAMING.items() if follow == 0)
"""The operators whose result has their first input's type unless `dtype` names another."""

TYPE_ATTRIBUTES: Mapping[str, str] = {name: row[0] for name, row in _NAMING.items()}
"""Operator -> the attribute that repeats the type variable of its last output."""

# operators: what their attributes, or the sequences that they read, say.
RULES: Mapping[str, Rule] = {
    **{name: _by_attribute(*row) for name, row in _NAMING.items()},
    "ConcatFromSequence": _element_of_first,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "LayerNormalization": _layer_norm,
    "Optional": _optional,
    "OptionalGetElement": _content_of_first,
    "SequenceAt": _element_of_first,
    "SequenceConstruct": _sequence_of_first,
    "SequenceEmpty": _sequence_empty,
    "SequenceErase": _same_as_first,
    "SequenceInsert": _same_as_first,
    "SplitToSequence": _sequence_of_first,
}
