"""The base class of optimizers, with the meaning that it has in TensorFlow 1's graph mode."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from amp_rewrite.errors import OptimizerValueError
from amp_rewrite.optimizers import argument_checks as check
from amp_rewrite.optimizers.apply_updates import Step, check_pairs, clip, train_op
from amp_rewrite.optimizers.compute_gradients import (
    Loss,
    barrier,
    check_float,
    check_loss,
    listed,
    raw_gradients,
)
from amp_rewrite.optimizers.gradient import Gradient, wrap
from amp_rewrite.optimizers.keras import Clipping, KerasMembers, Rate
from amp_rewrite.optimizers.slot_members import Variable
from amp_rewrite.optimizers.train_op import TrainOp
from amp_rewrite.training.training_graph import GraphValue, State, TrainingGraph

_AGGREGATION = (None, 0, 1, 2)


class Optimizer(KerasMembers):
    """Builds training steps: gradients of a loss, and the updates that minimize it.

    A child says what its slots are (`slots`, a NamedTuple of tensors shaped like the variable) and
    how one step changes a variable and its slots (`_update`).

    In a dataflow graph every node reads the state as it was before the step, and the updates are
    outputs of their own; no gradient can see a variable that is updated already. GATE_NONE and
    GATE_OP therefore need no extra nodes and are the same. GATE_GRAPH makes every gradient
    available before any is used, by a barrier of nodes through which all of them pass.
    """

    GATE_NONE: ClassVar[int] = 0
    GATE_OP: ClassVar[int] = 1
    GATE_GRAPH: ClassVar[int] = 2

    supports_loss_scaling: bool = True
    """Whether a loss scale may multiply the gradients on their way; False for a collective that
    does more with them than a linear function, such as compressing them."""

    def __init__(
        self,
        use_locking: bool = False,
        name: str = "",
        *,
        learning_rate: Rate = 0.01,
        **clipping: Any,
    ) -> None:
        """Name the optimizer; children have their hyperparameters in front.

        Args:
            use_locking: Accepted for compatibility: an ONNX step never updates a tensor in place,
                so that there is nothing to lock.
            name: Not empty; slots are named after it.
            learning_rate: A number or a schedule.
            **clipping: See `Clipping`.

        Raises:
            OptimizerValueError: The name is empty, or a hyperparameter is impossible.
        """
        if not name:
            raise OptimizerValueError("Must specify the optimizer name.", found=repr(name))
        self.use_locking = use_locking
        super().__init__(name, learning_rate, Clipping(**clipping))

    def get_name(self) -> str:
        """Return the optimizer's name."""
        return self._name

    def minimize(
        self,
        loss: Loss,
        global_step: Variable | None = None,
        var_list: Iterable[Variable] | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        name: str | None = None,
        grad_loss: GraphValue | None = None,
    ) -> TrainOp:
        """Add the nodes that minimize a loss: compute_gradients, then apply_gradients.

        Args:
            loss: See `compute_gradients`.
            global_step: See `apply_gradients`.
            var_list: See `compute_gradients`.
            gate_gradients: See `compute_gradients`.
            aggregation_method: See `compute_gradients`.
            colocate_gradients_with_ops: See `compute_gradients`.
            name: See `apply_gradients`.
            grad_loss: See `compute_gradients`.

        Returns:
            The step, for TrainingSession, build_step or write_training_info.

        Raises:
            GradientError: An operator between a variable and the loss has no gradient rule.
            OptimizerTypeError: What those two raise.
            OptimizerValueError: No variable has a gradient; and what those two raise.
        """
        pairs = self.compute_gradients(
            loss,
            var_list=var_list,
            gate_gradients=gate_gradients,
            aggregation_method=aggregation_method,
            colocate_gradients_with_ops=colocate_gradients_with_ops,
            grad_loss=grad_loss,
        )
        if all(gradient is None for gradient, _ in pairs):
            names = [variable.name for _, variable in pairs]
            of = pairs[0][1].graph.loss
            raise OptimizerValueError(
                "No gradients provided for any variable, check your graph for operators that do "
                f"not support gradients, between variables {names} and loss "
                f"{None if of is None else of.name!r}",
                remedy="pass a loss that depends on a variable through differentiable operators",
            )
        return self.apply_gradients(pairs, global_step=global_step, name=name)

    def compute_gradients(
        self,
        loss: Loss,
        var_list: Iterable[Variable] | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: GraphValue | None = None,
    ) -> list[tuple[Any, State]]:
        """Add the nodes that compute the gradients of a loss.

        Args:
            loss: A floating-point value, or a callable that returns one. If it is no scalar, the
                sum of its elements is differentiated.
            var_list: Variables: states, values or names; None is every floating-point initializer
                that the loss depends on. An initializer that is a constant of a formula, such as an
                epsilon, cannot be told from a weight: leave it out here.
            gate_gradients: GATE_NONE, GATE_OP or GATE_GRAPH; see the class.
            aggregation_method: None or a number of TensorFlow's AggregationMethod. Gradients that
                meet are added by one Sum in the widest of their types, whatever it is.
            colocate_gradients_with_ops: Accepted for compatibility: ONNX assigns no devices.
            grad_loss: The gradient of what comes behind the loss, in its shape, in place of ones.

        Returns:
            (gradient, variable) for each variable: the gradient is a GraphValue, IndexedSlices
            whose fields are GraphValues, or None where the loss does not depend on the variable.

        Raises:
            GradientError: An operator on the way has no gradient rule.
            OptimizerTypeError: The loss is no value.
            OptimizerValueError: An argument is impossible, there is no variable, or the loss or a
                variable is not floating-point.
        """
        del colocate_gradients_with_ops
        if gate_gradients not in (self.GATE_NONE, self.GATE_OP, self.GATE_GRAPH):
            raise OptimizerValueError(
                "gate_gradients must be one of: Optimizer.GATE_NONE, Optimizer.GATE_OP, "
                f"Optimizer.GATE_GRAPH. Not {gate_gradients}"
            )
        if aggregation_method not in _AGGREGATION:
            raise OptimizerValueError(
                f"Invalid aggregation_method specified {aggregation_method}",
                expected=" or ".join(map(str, _AGGREGATION)),
            )
        value = check_loss(loss)
        graph = value.graph
        check_float("loss", value.name, value.dtype)
        variables = self._variables(graph, value, var_list)
        found = raw_gradients(graph, value, variables, grad_loss)
        if gate_gradients == self.GATE_GRAPH:
            found = barrier(graph.builder, found)
        return [(wrap(graph, g), v) for g, v in zip(found, variables, strict=True)]

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Variable]],
        global_step: Variable | None = None,
        name: str | None = None,
    ) -> TrainOp:
        """Add the nodes that update variables by their gradients.

        That is `reduce_gradients`, then `apply_reduced`; optimizers that wrap another one hook in
        there.

        Args:
            grads_and_vars: (gradient, variable) pairs; a variable whose gradient is None stays as
                it is. Values of equal indices of a sparse gradient are summed first.
            global_step: The integer state that grows by 1 after the updates: a state, a value or a
                name. None is the graph's own, called "global_step".
            name: What the nodes are named after; by default the optimizer's name.

        Raises:
            OptimizerTypeError: A gradient is neither a value nor IndexedSlices nor None.
            OptimizerValueError: There are no pairs, or no gradients.
        """
        return self.apply_reduced(self.reduce_gradients(grads_and_vars), global_step, name)

    def reduce_gradients(
        self, grads_and_vars: Iterable[tuple[Gradient, Variable]]
    ) -> list[tuple[Gradient, Variable]]:
        """Return pairs whose gradients are those of all shards; here there is one shard."""
        return check.pairs(grads_and_vars)

    def apply_reduced(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Variable]],
        global_step: Variable | None = None,
        name: str | None = None,
    ) -> TrainOp:
        """Do what `apply_gradients` does, with gradients that `reduce_gradients` returned."""
        return self._apply_multiplied(grads_and_vars, global_step, name, 1.0)

    def _apply_multiplied(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Variable]],
        global_step: Variable | None,
        name: str | None,
        factor: float,
    ) -> TrainOp:
        """Do what `apply_reduced` does, with gradients that are multiplied by a number.

        Args:
            grads_and_vars: See `apply_gradients`.
            global_step: See `apply_gradients`.
            name: See `apply_gradients`.
            factor: 1, or `_gradient_factor()` of an optimizer that does not clip.
        """
        graph, pairs = check_pairs(grads_and_vars)
        self._states.graph = graph
        norm_of = [gradient for gradient, _ in pairs]
        pairs = clip(pairs, self.clipnorm, self.clipvalue, self.global_clipnorm)
        step = Step(self, graph, name or self._name, global_step, factor)
        self._step = step.counter
        for gradient, variable in pairs:
            step.update(gradient, variable)
        return train_op(step, norm_of)

    def get_gradients(self, loss: Loss, params: Iterable[Variable]) -> list[Any]:
        """Return the gradient of each of `params`, clipped as the optimizer was told to.

        Raises:
            OptimizerValueError: The loss does not depend on one of them.
        """
        pairs = self.compute_gradients(loss, var_list=params)
        missing = [variable.name for gradient, variable in pairs if gradient is None]
        if missing:
            raise OptimizerValueError(
                "a gradient is None: the loss does not depend on the variable", where=missing
            )
        clipped = clip(pairs, self.clipnorm, self.clipvalue, self.global_clipnorm)
        return [gradient for gradient, _ in clipped]

    def _variables(
        self, graph: TrainingGraph, loss: GraphValue, var_list: Iterable[Variable] | None
    ) -> Sequence[State]:
        if var_list is None:
            variables = graph.variables(loss.value)
        else:
            variables = list(dict.fromkeys(graph.variable(v) for v in listed(var_list)))
        if not variables:
            raise OptimizerValueError(
                "No variables to optimize.",
                where=f"loss {loss.name!r}",
                expected="a floating-point initializer that the loss depends on",
                remedy="keep the weights as initializers when exporting the model",
            )
        for variable in variables:
            check_float("variable", variable.name, variable.dtype)
        return variables
