"""Types that nodes and values of onnx_ir record, made to agree with the paint."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import DType
from amp_rewrite.graph.dataflow import VertexKind
from amp_rewrite.graph.elements import from_ir, to_ir, with_element
from amp_rewrite.graph.rounding import to_low
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.rewriting.typed_attributes import typed_attributes


def retype_attributes(node: ir.Node, kind: VertexKind, low: DType, saturate: float = 0.0) -> None:
    """Make the attributes of a node name the low type of one of its vertices; it is modified.

    Args:
        node: The node.
        kind: The kind of the vertex.
        low: The low type.
        saturate: The magnitude at which a ConstantOfShape's constant ends; 0 for no end.
    """
    for name in typed_attributes(kind):
        node.attributes[name] = ir.AttrInt64(name, low.number)
    if kind.operator[:2] == ("", "ConstantOfShape"):
        _retype_fill(node, low, saturate)


def pin_attributes(node: ir.Node) -> None:
    """Write down the float32 output type of a node whose input alone was retyped."""
    if has(node, Trait.TYPED_LIKE_FIRST) and "dtype" not in node.attributes:
        node.attributes["dtype"] = ir.AttrInt64("dtype", ir.DataType.FLOAT.value)


def retype_value(value: ir.Value, low: DType) -> None:
    """Make a value's recorded type low; a value without one is left without one."""
    recorded = from_ir(value.type)
    if recorded is not None:
        type_ = to_ir(with_element(recorded, low))
        if type_ is not None and value.type is not None:
            type_.denotation = value.type.denotation
        value.type = type_


def _retype_fill(node: ir.Node, low: DType, saturate: float) -> None:
    fill = np.zeros(1, np.float32)
    if "value" in node.attributes:
        fill = np.asarray(node.attributes["value"].as_tensor().numpy())
    tensor = ir.Tensor(to_low(fill, low, saturate=saturate), dtype=low.ir)
    node.attributes["value"] = ir.AttrTensor("value", tensor)
