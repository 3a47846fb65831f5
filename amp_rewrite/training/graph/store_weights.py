"""Weights in half the memory."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import DType, low_dtype
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.metadata_keys import PART_KEY
from amp_rewrite.graph.step_part import Part
from amp_rewrite.training.graph.freeze import changeable
from amp_rewrite.training.graph.selection import Selection, selected
from amp_rewrite.training.graph.training_graph import State, TrainingGraph

_SCOPE = "stored"


def store_weights(model: ir.Model, variables: Selection, dtype: str) -> list[str]:
    """Store float32 weights of a model in bfloat16 or float16, before gradients are computed.

    A step casts them to float32 where they are read. They have to be frozen when an optimizer
    applies gradients: its updates are smaller than what these types tell apart. What is exported
    has the model's types.

    Args:
        model: What `amp_rewrite.load` returned.
        variables: Which ones, as for `freeze`; "*" is all.
        dtype: "bfloat16" or "float16".

    Returns:
        The names of what is stored in the type now.

    Raises:
        OptionError: There is no such type, a pattern matches nothing, gradients have been computed
            already, or a weight is too large for the type.
    """
    low = low_dtype(dtype)
    graph = changeable(model)
    states = selected(graph.weights(), variables, "store_weights")
    chosen = [state for state in states if state.dtype is ir.DataType.FLOAT]
    tensors = [_rounded(state, low) for state in chosen]
    for state, tensor in zip(chosen, tensors, strict=True):
        _store(graph, state, tensor)
    graph.model.graph.sort()
    return [state.name for state in chosen]


def _rounded(state: State, low: DType) -> ir.TensorProtocol:
    """Return a weight in a low type."""
    array = state.read()
    with np.errstate(over="ignore"):
        rounded = array.astype(low.numpy)
    if not np.isfinite(rounded.astype(np.float32)[np.isfinite(array)]).all():
        raise OptionError(
            "the weight is too large for the type",
            where=state.name,
            found=f"magnitudes up to {np.abs(array).max():.3g}",
            expected=f"{low.max:.3g} at most",
            remedy="leave it out, or choose bfloat16",
        )
    return ir.tensor(rounded, dtype=low.ir, name=state.value.name)


def _store(graph: TrainingGraph, state: State, tensor: ir.TensorProtocol) -> None:
    """Store a weight as a tensor; what reads it reads it as float32."""
    value = state.value
    uses = list(value.uses())
    value.type, value.const_value, state.initial = ir.TensorType(tensor.dtype), tensor, tensor
    if state.role == "variable":  # the model has it
        graph.stored[state.name] = tensor
    b = graph.scoped(_SCOPE, Part.ARITHMETIC)
    wide = b.cast(value, ir.DataType.FLOAT)
    producer = wide.producer()
    assert producer is not None, "a node has just been added"
    producer.metadata_props.pop(PART_KEY)  # it belongs to the forward pass
    for use in uses:
        use.node.replace_input_with(use.idx, wide)
