"""Choose what of a model is trained."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.base import arguments
from amp_rewrite.errors import OptionError
from amp_rewrite.training.graph.selection import Selection, selected
from amp_rewrite.training.graph.training_graph import State, TrainingGraph, training_graph


def freeze(
    model: ir.Model, variables: Selection, *, train_statistics: bool | None = None
) -> list[str]:
    """Keep variables of a model as they are, before gradients are computed.

    Optimizers leave them out, and gradients that only they need are not computed.
    `freeze(model, "backbone.*")` is what `requires_grad_(False)` and `eval()` are in PyTorch and
    `trainable = False` is in Keras. A variable that a `var_list` names is trained anyway.

    Args:
        model: A loaded model.
        variables: Patterns of names such as "backbone.*|embedding.*", the words "bias", "norm" and
            "embedding", a regular expression, a function of a variable, or a list of these.
        train_statistics: Whether BatchNormalization uses and tracks the statistics of the batch, as
            `train()` in PyTorch, in the whole model; None is where its scale or bias is trained.

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
    graph = training_graph(model)
    if train_statistics is not None:
        train_statistics = arguments.switch("train_statistics", train_statistics)
    frozen_names = _ask(graph, variables, frozen=True, where="freeze")
    graph.train_statistics = train_statistics
    return frozen_names


def unfreeze(model: ir.Model, variables: Selection) -> list[str]:
    """Let variables of a model be trained, before gradients are computed; see `freeze`.

    Constants of formulas can be chosen, too. Return the names of what is not frozen any more.
    """
    return _ask(training_graph(model), variables, frozen=False, where="unfreeze")


def frozen(model: ir.Model) -> list[str]:
    """Return the names of the weights of a model that are not trained, in the model's order.

    They are those that `freeze` chose, and the constants of formulas that an exporter stored as
    weights: an attention scale, an epsilon, an exponent. `unfreeze` overrules.
    """
    graph = training_graph(model)
    return [v.name for v in graph.weights() if graph.is_frozen(v.name)]


def _ask(graph: TrainingGraph, variables: Selection, *, frozen: bool, where: str) -> list[str]:
    if graph.trains:
        raise OptionError(
            "gradients have been computed, for which variables were chosen",
            remedy="freeze and unfreeze variables before minimize or compute_gradients",
        )
    states: list[State] = selected(graph.weights(), variables, where)
    for variable in states:
        variable.trainable, graph.asked[variable.name] = not frozen, frozen
    return [variable.name for variable in states]
