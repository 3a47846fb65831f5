"""What gradients are taken with respect to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import onnx_ir as ir

from amp_rewrite.errors import OptimizerTypeError, OptimizerValueError
from amp_rewrite.training.graph.training_graph import GraphValue, State, TrainingGraph
from amp_rewrite.training.optimizers.compute_gradients import check_float

_KINDS = State | GraphValue | ir.Value | str


def chosen(graph: TrainingGraph, loss: GraphValue, var_list: object) -> list[Any]:
    """Return the variables, and other values, that a loss is differentiated with respect to.

    Returns:
        A State for each variable, a GraphValue for every other value; each once.

    Raises:
        OptimizerTypeError: An entry is not a variable.
        OptimizerValueError: There is none, or one is not floating-point.
        UnknownValueError: One is of another model.
    """
    if var_list is None:
        variables: list[Any] = list(graph.variables(loss.value))
    else:
        references = {v.value: v for v in (_denoted(graph, v) for v in flat(var_list))}
        variables = list(references.values())
    if not variables:
        raise OptimizerValueError(
            "No variables to optimize.",
            where=f"loss {loss.name!r}",
            expected="a floating-point initializer that the loss depends on",
            remedy="keep the weights as initializers when exporting the model, or unfreeze some",
        )
    for variable in variables:
        check_float("variable", variable.name, variable.dtype)
    return variables


def checked(loss: GraphValue, var_list: object) -> Any:
    """Return the argument of a wrapper, which refuses it before it adds anything.

    Raises:
        OptimizerTypeError: See `chosen`; so for the next two.
        OptimizerValueError: See there.
        UnknownValueError: See there.
    """
    references = chosen(loss.graph, loss, var_list)
    return None if var_list is None else references


def flat(var_list: object) -> list[Any]:
    """Return the entries of a variable, a list of variables, or lists inside lists.

    A function is called for them. Those of a mapping come in the order of its keys.

    Raises:
        OptimizerTypeError: An entry is not a variable.
    """
    if isinstance(var_list, _KINDS):
        return [var_list]
    if callable(var_list):
        return flat(var_list())
    if isinstance(var_list, Mapping):
        entries = cast(Mapping[Any, object], var_list)
        return [v for key in sorted(entries, key=str) for v in flat(entries[key])]
    if isinstance(var_list, Iterable) and not isinstance(var_list, bytes):
        return [v for entry in cast(Iterable[object], var_list) for v in flat(entry)]
    raise OptimizerTypeError(
        "not a variable",
        where="var_list",
        found=f"an object of type {type(var_list).__name__}",
        expected="a state, a value of the model, a name, or a list of these",
    )


def _denoted(graph: TrainingGraph, reference: State | GraphValue | ir.Value | str) -> Any:
    """Return the variable that a reference denotes, or the value if that is not an initializer."""
    if isinstance(reference, ir.Value) and reference.graph is graph.source.graph:
        reference = str(reference.name)
    denoted = graph.value(reference) if isinstance(reference, str) else reference
    if isinstance(denoted, ir.Value):
        denoted = GraphValue(graph, denoted)
    inside = isinstance(denoted, GraphValue) and denoted.value.graph is graph.model.graph
    if isinstance(denoted, GraphValue) and inside and not denoted.value.is_initializer():
        return denoted
    return graph.variable(denoted)
