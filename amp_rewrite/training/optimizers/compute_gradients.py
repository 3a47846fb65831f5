"""Gradients of a loss with respect to variables, inside a training graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import dtype_name
from amp_rewrite.errors import OptimizerTypeError, OptimizerValueError
from amp_rewrite.grad.builder.known import differ
from amp_rewrite.grad.walk import gradients
from amp_rewrite.training.graph.training_graph import GraphValue, State, TrainingGraph
from amp_rewrite.training.graph.training_mode import turn_on_training_mode
from amp_rewrite.training.optimizers.gradient import Raw, values_of

FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)

Loss: TypeAlias = GraphValue | Callable[[], GraphValue]
"""A loss, or a function that returns one."""

_KINDS = State | GraphValue | ir.Value | str

_GATES, _AGGREGATIONS = (0, 1, 2), (None, 0, 1, 2)


def check_options(gate_gradients: object, aggregation_method: object) -> None:
    """Refuse options that TensorFlow refuses; none has an effect."""
    if not isinstance(gate_gradients, int) or gate_gradients not in _GATES:
        raise OptimizerValueError(
            "gate_gradients must be one of: Optimizer.GATE_NONE, Optimizer.GATE_OP, "
            f"Optimizer.GATE_GRAPH. Not {gate_gradients}"
        )
    if not isinstance(aggregation_method, int | None) or aggregation_method not in _AGGREGATIONS:
        raise OptimizerValueError(
            f"Invalid aggregation_method specified {aggregation_method}",
            expected=" or ".join(map(str, _AGGREGATIONS)),
        )


def check_loss(loss: object) -> GraphValue:
    """Return a loss, which is called if it is a function."""
    value: object = loss() if callable(loss) else loss
    if not isinstance(value, GraphValue):
        several = isinstance(value, list | tuple)
        raise OptimizerTypeError(
            "the loss must be a value of a model",
            found=type(value).__name__,
            remedy="add the losses" if several else "take it with amp_rewrite.value(model, name)",
        )
    return value


def check_float(what: str, name: str, dtype: ir.DataType) -> None:
    """Refuse a type that has no gradients."""
    if dtype not in FLOATS:
        raise OptimizerValueError(
            f"Invalid type {dtype_name(dtype)} for {what} {name!r}",
            expected=" or ".join(dtype_name(t) for t in FLOATS),
            remedy="only floating-point values have gradients",
        )


def check_grad_loss(loss: GraphValue, grad_loss: object) -> GraphValue | None:
    """Return the gradient of a loss, checked; None stands for ones."""
    if grad_loss is None:
        return None
    if not isinstance(grad_loss, GraphValue):
        raise OptimizerTypeError(
            "grad_loss must be a value",
            found=f"an object of type {type(grad_loss).__name__}",
            remedy="take it with amp_rewrite.value(model, name), or multiply the loss by a number",
        )
    if grad_loss.graph is not loss.graph:
        raise OptimizerValueError("grad_loss is a value of another model", where=grad_loss.name)
    check_float("grad_loss", grad_loss.name, grad_loss.dtype)
    lengths, expected = grad_loss.shape, loss.shape
    if lengths is not None and expected is not None and differ(lengths, expected):
        raise OptimizerValueError(
            "grad_loss has another shape than the loss",
            where=grad_loss.name,
            found=list(lengths),
            expected=list(expected),
        )
    return grad_loss


def raw_gradients(
    graph: TrainingGraph,
    loss: GraphValue,
    variables: Sequence[State | GraphValue],
    grad_loss: GraphValue | None,
) -> list[Raw | None]:
    """Turn a graph to training mode; return the gradient of each variable or value."""
    states = [v for v in variables if isinstance(v, State)] or graph.variables(loss.value)
    turn_on_training_mode(graph, [state.value for state in states])
    graph.loss = loss
    b = graph.builder
    seed = _ones(graph, loss.value) if grad_loss is None else grad_loss.value
    seed = b.cast_like(seed, loss.value)
    gradients_of = list(gradients(b, {loss.value: seed}, [v.value for v in variables]))
    graph.seeds.append(seed)
    own = {
        variable.name: gradient
        for variable, gradient in zip(variables, gradients_of, strict=True)
        if gradient is not None and isinstance(variable, State)
    }
    graph.gradients = {name: values_of(gradient) for name, gradient in own.items()}
    return gradients_of


def _ones(graph: TrainingGraph, loss: ir.Value) -> ir.Value:
    """Return ones shaped like a loss: a constant with one reader, to inject a loss scale there."""
    dims = graph.builder.dims(loss)
    if dims is None or None in dims:
        return graph.builder.ones_like(loss)
    name, dtype = graph.free_name("gradient/seed"), graph.builder.type_of(loss)
    array = np.ones([d or 0 for d in dims], dtype.numpy())
    tensor = ir.tensor(array, dtype=dtype, name=name)
    ones = ir.Value(
        name=name, type=ir.TensorType(dtype), shape=ir.Shape(array.shape), const_value=tensor
    )
    graph.model.graph.register_initializer(ones)
    return ones


def chosen_variables(graph: TrainingGraph, loss: GraphValue, var_list: object) -> list[Any]:
    """Return a State for each variable of a list, and a GraphValue for each other value, once."""
    if var_list is None:
        variables: list[Any] = list(graph.variables(loss.value))
    else:
        references = {v.value: v for v in (_denoted(graph, v) for v in flat_var_list(var_list))}
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


def flat_var_list(var_list: object) -> list[Any]:
    """Return the entries of nested lists of variables, mappings (by key) and functions."""
    if isinstance(var_list, _KINDS):
        return [var_list]
    if callable(var_list):
        return flat_var_list(var_list())
    if isinstance(var_list, Mapping):
        entries = cast(Mapping[Any, object], var_list)
        return [v for key in sorted(entries, key=str) for v in flat_var_list(entries[key])]
    if isinstance(var_list, Iterable) and not isinstance(var_list, bytes):
        return [v for entry in cast(Iterable[object], var_list) for v in flat_var_list(entry)]
    raise OptimizerTypeError(
        "not a variable",
        where="var_list",
        found=f"an object of type {type(var_list).__name__}",
        expected="a state, a value of the model, a name, or a list of these",
    )


def _denoted(graph: TrainingGraph, reference: State | GraphValue | ir.Value | str) -> Any:
    """Return the variable that a reference means, or the value if that is not an initializer."""
    if isinstance(reference, ir.Value) and reference.graph is graph.source.graph:
        reference = str(reference.name)
    denoted = graph.value(reference) if isinstance(reference, str) else reference
    if isinstance(denoted, ir.Value):
        denoted = GraphValue(graph, denoted)
    inside = isinstance(denoted, GraphValue) and denoted.value.graph is graph.model.graph
    if isinstance(denoted, GraphValue) and inside and not denoted.value.is_initializer():
        return denoted
    return graph.variable(denoted)
