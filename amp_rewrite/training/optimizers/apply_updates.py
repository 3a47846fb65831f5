"""Add the updates of one step to a training graph, and check what they are made from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, cast

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import dtype_name
from amp_rewrite.errors import OptimizerTypeError, OptimizerValueError, UnsupportedError
from amp_rewrite.grad.builder.known import constant_tensor, differ, dims, type_of
from amp_rewrite.grad.rule import IndexedSlices
from amp_rewrite.graph.metadata_keys import PART_KEY
from amp_rewrite.graph.step_part import Part
from amp_rewrite.training.graph.training_graph import GraphValue, State, TrainingGraph
from amp_rewrite.training.optimizers import argument_checks as check
from amp_rewrite.training.optimizers import clipping
from amp_rewrite.training.optimizers.gradient import Gradient, graph_of, merged, unwrap, values_of
from amp_rewrite.training.optimizers.learning_rate import LEARNING_RATE, LearningRate
from amp_rewrite.training.optimizers.slots import OptimizerStates, Variable
from amp_rewrite.training.optimizers.train_op import NORM, TrainOp
from amp_rewrite.training.optimizers.update_rule import (
    SharedInput,
    UpdateFunctions,
    UpdateInput,
    UpdateRule,
)

Pairs = list[tuple[Any, State]]

OWN_COUNTER = "global_step"
"""The counter that a model gets if it has none."""


class StepUpdates:
    """One step under construction."""

    def __init__(
        self,
        rule: UpdateRule,
        rate: LearningRate,
        states: OptimizerStates,
        graph: TrainingGraph,
        *,
        scope: str,
        counter: State,
    ) -> None:
        """Add the nodes that all variables share; `counter` counts the steps."""
        self._graph, self._rule, self._states, self._counter = graph, rule, states, counter
        self._updates: dict[str, ir.Value] = {}
        self._b = graph.scoped(scope, Part.UPDATE)
        self._shared: dict[ir.DataType, Any] = {}
        self._functions = UpdateFunctions(rule, states.optimizer, self._b)
        self._rate = rate.add_to(graph, self._b, counter)
        initial = rule.initial_others()
        self._others = {k: states.add_other(graph, k, array) for k, array in initial.items()}

    def _input(self, dtype: ir.DataType) -> SharedInput:
        others = {name: state.value for name, state in self._others.items()}
        return SharedInput(self._b, dtype, self._b.cast(self._rate, dtype), others)

    def update(self, gradient: Gradient, variable: State) -> None:
        """Add the update of one variable and its slots; a gradient of None leaves them alone."""
        if gradient is None:
            return
        rule, b = self._rule, self._b
        dtype = ir.DataType.DOUBLE if variable.dtype.itemsize == 8 else ir.DataType.FLOAT
        if dtype not in self._shared:
            self._shared[dtype] = rule.shared(self._input(dtype))
        names = rule.slots._fields
        slots = [self._states.add_slot(variable, n, rule.initial_slot(n)) for n in names]
        states = [variable, *slots]
        raw = merged(b, unwrap(gradient), rows_only=rule.touches_rows_only)
        rows = raw.indices if isinstance(raw, IndexedSlices) else None
        stored = [state.value for state in states]
        present = stored if rows is None else [b.gather(value, rows) for value in stored]
        given = UpdateInput(b, present[0], b.cast(values_of(raw), dtype))
        value, new = self._functions.call(given, self._shared[dtype], rule.slots(*present[1:]))
        for state, result in zip(states, (value, *new), strict=True):
            whole = result
            if rows is not None:
                whole = b.op("ScatterND", state.value, b.unsqueeze(rows, [1]), result)
            self._updates[state.name] = b.shaped_like(whole, state.value)
        self._updates[variable.name] = _constrained(variable, self._updates[variable.name])

    def finish(self, gradients: Sequence[Any]) -> TrainOp:
        """Add the other updates, the counter's last; `gradients` are those before own clipping."""
        graph, loss, updates = self._graph, self._graph.loss, self._updates
        following = self._rule.advance(self._input(ir.DataType.FLOAT))
        updates |= {state.name: following[name] for name, state in self._others.items()}
        updates |= graph.statistics(None if loss is None else loss.value)
        updates[self._counter.name] = self._b.add(self._counter.value, 1)
        raw = [unwrap(g) for g in gradients if g is not None]
        b = graph.scoped(clipping.SCOPE, Part.CLIP)
        fetches = {
            NORM: clipping.norm_before_clipping(b, raw),
            LEARNING_RATE: self._rate,
            "global_step": updates[self._counter.name],
        }
        if loss is not None:
            fetches["loss"] = loss.value
        return TrainOp(graph, loss, updates, self._counter.name, fetches)


def _constrained(variable: State, updated: ir.Value) -> ir.Value:
    """Return an updated value after the variable's constraint, whose nodes join the update."""
    if variable.constraint is None:
        return updated
    graph = variable.graph
    before = set(graph.model.graph)
    result = cast(object, variable.constraint(GraphValue(graph, updated)))
    if not isinstance(result, GraphValue) or result.graph is not graph:
        raise OptimizerTypeError(
            "a constraint must return a value of the same model",
            where=variable.name,
            found=f"an object of type {type(result).__name__}",
        )
    found, expected = (
        f"{dtype_name(t.dtype)} {'unknown lengths' if t.shape is None else list(t.shape)}"
        for t in (result, variable)
    )
    if found != expected:
        raise OptimizerValueError(
            "a constraint must keep the type and the shape",
            where=variable.name,
            found=found,
            expected=expected,
        )
    for node in graph.model.graph:
        if node not in before:
            node.metadata_props[PART_KEY] = Part.UPDATE
    return result.value


def step_counter(graph: TrainingGraph, global_step: Variable | None, *, new: bool) -> State:
    """Return the state that counts steps; see `check_step`. It is made if it is not there."""
    counter = check_step(graph, global_step, new=new)
    if counter is not None:
        return counter
    if global_step is None:
        return graph.global_step()
    return graph.state(str(global_step), np.array(0, np.int64), "global_step")


def check_step(
    graph: TrainingGraph, global_step: Variable | None, *, new: bool = False
) -> State | None:
    """Return the state that counts steps, given itself, a value or a name; None for a missing one.

    None stands for the graph's own counter. With `new`, an unknown name is that of a new counter.
    """
    if global_step is None:
        return None
    if isinstance(global_step, str) and not graph.has(global_step):
        check.label("the global step", global_step)
        if not new and global_step not in graph.states and global_step != OWN_COUNTER:
            raise _unknown_counter(graph, global_step)
        return None
    reference = graph.value(global_step) if isinstance(global_step, str) else global_step
    if isinstance(reference, State | GraphValue) and reference.graph is not graph:  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        raise OptimizerValueError("the global step is of another model", where=reference.name)
    return counter_of(reference)


def _unknown_counter(graph: TrainingGraph, name: str) -> OptimizerValueError:
    """Return the error about a counter that the model lacks, with similar names."""
    values = graph.source.graph.initializers.values()
    whole = [v for v in values if v.dtype is not None and v.dtype.is_integer()]
    names = sorted({OWN_COUNTER, *(str(v.name) for v in whole if dims(v) == ())})
    return OptimizerValueError(
        "the model has no counter of this name",
        where=name,
        expected=" or ".join(map(repr, get_close_matches(name, names, n=1) or names)),
        remedy=f"set `optimizer.iterations = {name!r}` for a new counter",
    )


def counter_of(given: object) -> State:
    """Return the state that counts steps, given a state or an initializer's value."""
    if not isinstance(given, State | GraphValue):
        raise OptimizerTypeError(
            "the global step must be a state, a value of the model or a name",
            found=f"an object of type {type(given).__name__}",
        )
    value = given.value
    if isinstance(given, GraphValue) and not value.is_initializer():
        raise OptimizerValueError(
            "the global step must be an initializer of this model", where=given.name
        )
    if not given.dtype.is_integer() or given.shape:
        raise OptimizerValueError(
            f"Invalid type {dtype_name(given.dtype)} for global_step {given.name!r}",
            expected="an integer scalar",
        )
    return given if isinstance(given, State) else given.graph.track(value, "global_step")


def check_pairs(grads_and_vars: Iterable[tuple[Any, Any]]) -> tuple[TrainingGraph, Pairs]:
    """Return the training graph, and pairs of a gradient (with a dense_shape) and a state."""
    checked_pairs = check.pairs(grads_and_vars)
    if not checked_pairs:
        raise OptimizerValueError("No variables provided.")
    for gradient, variable in checked_pairs:
        if gradient is not None:
            unwrap(gradient)
        if not isinstance(variable, State | GraphValue | str):
            raise OptimizerTypeError("not a variable", found=type(variable).__name__)
    if all(gradient is None for gradient, _ in checked_pairs):
        names = [v if isinstance(v, str) else v.name for _, v in checked_pairs]
        raise OptimizerValueError(
            f"No gradients provided for any variable: {names}",
            remedy="pass what compute_gradients returned for a loss that depends on them",
        )
    graph = _graph(checked_pairs)
    pairs = [(gradient, _variable(graph, variable)) for gradient, variable in checked_pairs]
    if len({state.name for _, state in pairs}) < len(pairs):
        raise OptimizerValueError(
            "a variable is given twice", found=[state.name for _, state in pairs]
        )
    for number, (gradient, variable) in enumerate(pairs):
        _check_gradient(gradient, variable)
        if isinstance(gradient, IndexedSlices) and gradient.dense_shape is None:
            b = graph.scoped("gradient", Part.ARITHMETIC)
            shape: Any = GraphValue(graph, b.constant(np.array(variable.shape, np.int64)))
            pairs[number] = gradient._replace(dense_shape=shape), variable
    return graph, pairs


def _variable(graph: TrainingGraph, given: Variable) -> State:
    """Return the variable that a state, a value or a name refers to."""
    reference = graph.value(given) if isinstance(given, str) else given
    if isinstance(reference, GraphValue) and not reference.value.is_initializer():
        raise UnsupportedError(
            "Trying to update a Tensor",
            where=reference.name,
            found="a value that each step computes or is fed",
            expected="a variable",
            remedy="use its gradient as a fetch, and leave it out of apply_gradients",
        )
    return graph.variable(reference)


def _check_gradient(gradient: Gradient, variable: State) -> None:
    """Refuse a gradient that is known not to fit its variable: it would be broadcast."""
    if gradient is None:
        return
    if variable.dtype.itemsize == 2:
        raise OptimizerValueError(
            f"a weight stored in {dtype_name(variable.dtype)} cannot be trained: small updates "
            "would be lost",
            where=variable.name,
            expected="float32, which precision= casts where it is read",
            remedy="freeze it, or store it in float32",
        )
    raw = unwrap(gradient)
    if variable.constraint is not None and isinstance(raw, IndexedSlices):
        raise UnsupportedError(
            "Cannot use a constraint function on a sparse variable.",
            where=variable.name,
            found="a gradient of IndexedSlices",
            remedy="take the constraint away, or read the table by something else than Gather",
        )
    values = values_of(raw)
    expected: tuple[int | None, ...] = variable.shape
    kind = type_of(values) if values.type is not None else ir.DataType.FLOAT
    if not kind.is_floating_point():
        raise OptimizerValueError(
            f"Invalid type {dtype_name(kind)} for the gradient of {variable.name!r}",
            expected="a floating-point type",
        )
    if isinstance(raw, IndexedSlices):
        _check_indices(raw, variable)
        expected = (None, *expected[1:])
    lengths = dims(values)
    if lengths is not None and differ(lengths, expected):
        raise OptimizerValueError(
            "a gradient has another shape than its variable",
            where=variable.name,
            found=list(lengths),
            expected=["rows" if length is None else length for length in expected],
            remedy="pair each gradient with the variable that compute_gradients gave it with",
        )


def _check_indices(slices: IndexedSlices, variable: State) -> None:
    """Refuse indices that are not one integer for each row of the values."""
    values, indices = dims(slices.values), dims(slices.indices)
    kind = ir.DataType.INT64 if slices.indices.type is None else type_of(slices.indices)
    shape = None if slices.dense_shape is None else constant_tensor(slices.dense_shape)
    dense = variable.shape if shape is None else tuple(shape.numpy().tolist())
    fits = indices is None or not differ(indices, (values[0] if values else None,))
    integers = kind in (ir.DataType.INT32, ir.DataType.INT64)
    if not fits or not integers or not variable.shape or dense != variable.shape:
        raise OptimizerValueError(
            "the indices of IndexedSlices do not fit its variable",
            where=variable.name,
            found=f"{dtype_name(kind)} {list(indices or ())}, dense_shape {list(dense)}",
            expected=f"an integer for each row, dense_shape {list(variable.shape)}",
        )


def _graph(pairs: Sequence[tuple[Any, Any]]) -> TrainingGraph:
    graph = graph_of(gradient for gradient, _ in pairs)
    if graph is not None:
        return graph
    for _, variable in pairs:
        if not isinstance(variable, str):
            return variable.graph
    raise OptimizerValueError(
        "the gradients do not tell which model they belong to",
        expected="gradients that compute_gradients returned, or variables that are states",
    )
