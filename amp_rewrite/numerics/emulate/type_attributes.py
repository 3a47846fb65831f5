"""Attributes that name or hold a 16-bit type become float32 ones."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from amp_rewrite import dtypes
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.graph import elements
from amp_rewrite.graph.tensors import ConvertedTensor

LOW_MEMBERS: frozenset[ir.DataType] = frozenset(t.ir for t in dtypes.LOW.values())

_TYPE_ATTRIBUTES = (
    "dtype",
    "output_datatype",
    "output_dtype",
    "precision",
    "softmax_precision",
    "stash_type",
)
"""Attributes that hold an element type, whatever the operator (Cast's `to` aside)."""

_LOW_NUMBERS = frozenset(member.value for member in LOW_MEMBERS)


def make_float32(node: ir.Node) -> None:
    """Replace the 16-bit types and tensors in a node's attributes, in place."""
    for name in _TYPE_ATTRIBUTES:
        attribute = node.attributes.get(name)
        if attribute is not None and attribute.value in _LOW_NUMBERS:
            node.attributes[name] = ir.AttrInt64(name, FLOAT32.ir.value)
    for name, attribute in list(node.attributes.items()):
        if attribute.type is ir.AttributeType.TENSOR:
            if is_low_tensor(attribute.value):
                node.attributes[name] = ir.AttrTensor(name, widen(attribute.value))
        elif attribute.type is ir.AttributeType.TYPE_PROTO:
            dtype = elements.from_ir(attribute.value.type)
            if dtype is not None and elements.element(dtype) in LOW_MEMBERS:
                type_ = elements.to_ir(elements.with_element(dtype, FLOAT32))
                wide = ir.TypeAndShape(type_, attribute.value.shape)  # pyright: ignore[reportArgumentType] a 16-bit type is a known one
                node.attributes[name] = ir.Attr(name, ir.AttributeType.TYPE_PROTO, wide)


def is_low_tensor(tensor: Any) -> bool:
    """Return whether a dense tensor is float16 or bfloat16."""
    return tensor.dtype in LOW_MEMBERS


def widen(tensor: ir.TensorProtocol) -> ConvertedTensor:
    """Return a 16-bit tensor's values as float32, converted chunk by chunk when they are read."""
    return ConvertedTensor(tensor, FLOAT32)
