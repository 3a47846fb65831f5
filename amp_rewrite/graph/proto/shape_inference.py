"""onnx's inference of shapes, behind one gate: `inferred`, or `infer_in_place`."""

from __future__ import annotations

import onnx
import onnx.shape_inference
from google.protobuf.message import EncodeError

from amp_rewrite.graph.proto.messages import graphs_of

FAILURES = (
    *(onnx.shape_inference.InferenceError, EncodeError, RuntimeError, ValueError),
    *(TypeError, LookupError, ArithmeticError),
)
"""Exceptions of inference, and of the computation of shapes, for a model that is wrong or odd."""

ENDS_INFERENCE = "EyeLike"
"""The operator whose inference of shapes ends the process in onnx 1.23.2 where nothing is known of
the type of its input, such as that of a function behind which inference stops."""

HIDDEN = f"no {ENDS_INFERENCE}"
"""Its name while inference looks at the rest of a model."""


def inferred(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with the shapes that inference finds; the one given is not modified.

    Raises:
        FAILURES: Inference refuses the model, or it is larger than 2 GB.
    """
    content = proto.SerializeToString()
    hidden = _inferred_without(content)
    return hidden or onnx.shape_inference.infer_shapes(content, data_prop=True)


def _inferred_without(content: bytes) -> onnx.ModelProto | None:
    """Return what inference finds without operators that would end it; None if none would."""
    if ENDS_INFERENCE.encode() not in content:
        return None
    proto = onnx.ModelProto.FromString(content)
    _hide(proto.graph)
    found = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    return found if _is_blind(found.graph, frozenset()) else None


def _hide(graph: onnx.GraphProto) -> None:
    for node in graph.node:
        if node.op_type == ENDS_INFERENCE:
            node.op_type = HIDDEN
        for body in graphs_of(node):
            _hide(body)


def ends_inference(proto: onnx.ModelProto) -> bool:
    """Tell whether inference of a model as it is, which converting its opset needs, may end."""
    return _inferred_without(proto.SerializeToString()) is not None


def _is_blind(graph: onnx.GraphProto, typed: frozenset[str]) -> bool:
    """Tell whether a hidden operator reads a value without a type, in a graph or inside it."""
    infos = (*graph.input, *graph.value_info, *graph.output)
    typed |= {i.name for i in infos if i.type.WhichOneof("value")}
    typed |= {tensor.name for tensor in graph.initializer}
    return any(
        (node.op_type == HIDDEN and node.input[0] not in typed)
        or any(_is_blind(body, typed) for body in graphs_of(node))
        for node in graph.node
    )
