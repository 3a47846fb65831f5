"""Attributes that repeat an element type and must agree with the paint."""

from __future__ import annotations

from amp_rewrite.graph.dataflow import VertexKind

OPSET_OF_CASTS = 13
"""The opset to import for a model that uses no operator of ai.onnx: Cast knows bfloat16 since."""

# operators: which of their attributes repeat the type of which variable.
TYPE_ATTRIBUTES: dict[tuple[str, str], str] = {
    ("Bernoulli", "T2"): "dtype",
    ("BlackmanWindow", "T2"): "output_datatype",
    ("Cast", "T2"): "to",
    ("DequantizeLinear", "T3"): "output_dtype",
    ("EyeLike", "T2"): "dtype",
    ("HammingWindow", "T2"): "output_datatype",
    ("HannWindow", "T2"): "output_datatype",
    ("LayerNormalization", "U"): "stash_type",
    ("MelWeightMatrix", "T3"): "output_datatype",
    ("RandomNormal", "T"): "dtype",
    ("RandomNormalLike", "T2"): "dtype",
    ("RandomUniform", "T"): "dtype",
    ("RandomUniformLike", "T2"): "dtype",
    ("SequenceEmpty", "S"): "dtype",
}
"""(operator, variable) -> the attribute that names the variable's element type.

Source: the operators' texts in https://onnx.ai/onnx/operators/.
"""


def typed_attributes(kind: VertexKind) -> list[str]:
    """Return the attributes that repeat the element type of a kind of vertices."""
    if kind.operator.domain != "":
        return []
    named = [TYPE_ATTRIBUTES.get((kind.operator.op_type, v)) for v in kind.variables]
    return [name for name in named if name is not None]
