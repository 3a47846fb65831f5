"""Give the model that was trained back: its own structure, with new weights."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from amp_rewrite.errors import StepError
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.io.save import to_proto
from amp_rewrite.graph.metadata_keys import FORWARD_KEY


def keep_forward(model: ir.Model, forward: ir.Model, states: Collection[str]) -> None:
    """Store the structure of `forward` in a step, without the weights that are states of it.

    Args:
        model: The step; its metadata are changed.
        forward: A copy of the model as it was before training nodes were added; its weights are
            emptied.
        states: Names of the state tensors of the step.
    """
    for name, value in forward.graph.initializers.items():
        tensor = value.const_value
        if name in states and tensor is not None:
            value.const_value = ir.tensor(np.zeros(0, tensor.dtype.numpy()), name=name)
        elif isinstance(tensor, ir.ExternalTensor):  # its file may be elsewhere later
            value.const_value = ir.tensor(np.array(tensor.numpy()), name=name)
    packed = zlib.compress(to_proto(forward).SerializeToString(deterministic=True), 6)
    model.metadata_props[FORWARD_KEY] = base64.b64encode(packed).decode("ascii")


def forward_of(step: ir.Model) -> ir.Model:
    """Return the model that a step trains; weights that are states are empty."""
    text = step.metadata_props.get(FORWARD_KEY)
    if text is None:
        raise StepError(
            "the step does not contain the model that it trains",
            found=f"no metadata {FORWARD_KEY!r}",
            remedy="build the step again with this version",
        )
    try:
        proto = onnx.ModelProto()
        proto.ParseFromString(zlib.decompress(base64.b64decode(text, validate=True)))
        return load(proto)
    except (ValueError, zlib.error, DecodeError) as error:
        raise StepError(
            "the model that the step trains cannot be read",
            found=error,
            remedy="build the step again",
        ) from error


def set_weights(model: ir.Model, weights: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Replace the initializers of a model that are named in `weights`, in place; types stay."""
    for name, value in model.graph.initializers.items():
        if name in weights:
            present = value.const_value
            dtype = weights[name].dtype if present is None else present.dtype.numpy()
            value.const_value = ir.tensor(weights[name].astype(dtype, copy=False), name=name)
            value.shape = ir.Shape(weights[name].shape)  # a step file holds empty ones
