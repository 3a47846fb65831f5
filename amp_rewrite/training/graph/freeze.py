"""Choose what of a model is trained."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from amp_rewrite.base import arguments
from amp_rewrite.dtypes import DType, low_dtype
from amp_rewrite.errors import OptionError
from amp_rewrite.grad.builder.known import maker
from amp_rewrite.graph.metadata_keys import PART_KEY
from amp_rewrite.graph.step_part import Part
from amp_rewrite.training.graph.selection import Selection, selected
from amp_rewrite.training.graph.training_graph import State, TrainingGraph, training_graph

_SCOPE = "stored"


def freeze(
    model: ir.Model,
    variables: Selection,
    *,
    train_statistics: bool | None = None,
) -> list[str]:
    """Keep variables of a model as they are, before gradients are computed.

    Optimizers leave them out, gradients stop at them, and nothing is computed behind them.
    `freeze(model, "backbone.*")` is what `requires_grad_(False)` and `eval()` are in PyTorch and
    `trainable = False` is in Keras. A variable that a `var_list` names is trained anyway.

    Args:
        model: What `amp_rewrite.load` returned.
        variables: Which ones: patterns of names such as "backbone.*|embedding.*", the words "bias",
            "norm" and "embedding", a regular expression, a function of a variable, or a list of
            these; see `selected`.
        train_statistics: Whether BatchNormalization uses and tracks the statistics of the batch,
            as `train()` in PyTorch; None is for all whose scale or bias is trained, so that frozen
            ones are in inference mode. It holds for the whole model.

    Returns:
        The names of what is frozen by this call.

    Raises:
        OptionError: A pattern matches nothing, gradients have been computed already, or an
            argument is of a kind that it cannot be.

    Examples:
        >>> model = amp.load("model.onnx")
        >>> amp.freeze(model, "w1")
        ['w1']
    """
    graph = changeable(model)
    if train_statistics is not None:
        train_statistics = arguments.switch("train_statistics", train_statistics)
    frozen_names = _ask(graph, variables, frozen=True, where="freeze")
    graph.train_statistics = train_statistics
    return frozen_names


def unfreeze(model: ir.Model, variables: Selection) -> list[str]:
    """Let variables of a model be trained, before gradients are computed; see `freeze`.

    What was taken for the constant of a formula is trained then.

    Returns:
        The names of what is not frozen any more.

    Raises:
        OptionError: A pattern matches nothing, or gradients have been computed already.
    """
    return _ask(changeable(model), variables, frozen=False, where="unfreeze")


def frozen(model: ir.Model) -> list[str]:
    """Return the names of the weights of a model that are not trained, in the model's order.

    They are what `freeze` chose, and the constants of formulas that an exporter stored as weights:
    an attention scale, an epsilon, an exponent. `unfreeze` overrules.

    Raises:
        OptionError: It is not a loaded model.
    """
    graph = training_graph(model)
    return [v.name for v in graph.weights() if graph.is_frozen(v.name)]


def changeable(model: ir.Model) -> TrainingGraph:
    """Return the training graph of a model whose gradients are not computed yet."""
    graph = training_graph(model)
    if graph.trains:
        raise OptionError(
            "gradients have been computed, for which variables were chosen",
            remedy="freeze and unfreeze variables before minimize or compute_gradients",
        )
    return graph


def _ask(graph: TrainingGraph, variables: Selection, *, frozen: bool, where: str) -> list[str]:
    states: list[State] = selected(graph.weights(), variables, where)
    names = [v.name for v in states]
    graph.asked.update(dict.fromkeys(names, frozen))
    for variable in states:
        variable.trainable = not frozen
    return names


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
    maker(wide).metadata_props.pop(PART_KEY)  # it belongs to the forward pass
    for use in uses:
        use.node.replace_input_with(use.idx, wide)
