"""The base class of optimizers, with the meaning that it has in TensorFlow 1's graph mode."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, ClassVar, Self, cast

import numpy as np

from amp_rewrite.errors import OptimizerTypeError, OptimizerValueError
from amp_rewrite.training.graph.training_graph import GraphValue, State
from amp_rewrite.training.optimizers import argument_checks as check
from amp_rewrite.training.optimizers import schedules
from amp_rewrite.training.optimizers.apply_updates import check_pairs, check_step
from amp_rewrite.training.optimizers.basic_optimizer import BasicOptimizer
from amp_rewrite.training.optimizers.clipping import clip
from amp_rewrite.training.optimizers.compute_gradients import (
    Loss,
    check_loss,
    check_options,
    flat_var_list,
)
from amp_rewrite.training.optimizers.config import LIMITS, NAMES, arguments, flat
from amp_rewrite.training.optimizers.gradient import Gradient
from amp_rewrite.training.optimizers.gradient_accumulation import Accumulation
from amp_rewrite.training.optimizers.learning_rate import Rate
from amp_rewrite.training.optimizers.slots import Variable, VarList, assign_all
from amp_rewrite.training.optimizers.train_op import TrainOp
from amp_rewrite.training.optimizers.update_rule import UpdateRule


class Optimizer(BasicOptimizer):
    """Builds training steps: gradients of a loss, and the updates that minimize it.

    It has a rule, which says how one step changes a variable; the members here are the same for
    every rule. An optimizer of one's own is `Optimizer(rule=...)`, see `UpdateRule`; a child may
    override `compute_gradients`, `apply_gradients` and `get_gradients`, which optimizers that wrap
    it call.

    In a dataflow graph every node reads the state as it was before the step, and the updates are
    outputs of their own; no gradient can see a variable that is updated already. What
    `gate_gradients` asks for is therefore given, without a node for it.

    Attributes:
        rule: How one step changes a variable. It and the settings cannot be set any more
            when gradients have been applied: a step would keep what it has.
        use_locking: What the constructor was given.
        settings: How it clips, averages and accumulates; the fields of `Settings` are attributes
            of the optimizer too.
    """

    _rule: ClassVar[Callable[..., UpdateRule]]
    """What makes the rule of the hyperparameters."""

    def __init_subclass__(
        cls, *, rule: Callable[..., UpdateRule] | None = None, **defaults: Any
    ) -> None:
        """Let the signature of a class's constructor be all of it if the class names a rule.

        Args:
            rule: Makes the rule; None is that of the parent.
            **defaults: Other defaults than those of the parent's arguments.
        """
        super().__init_subclass__()
        if rule is not None:
            cls._rule = staticmethod(rule)
        if rule is not None or defaults:
            cls.__init__ = _constructor(cls.__init__, defaults)

    def get_name(self) -> str:
        """Return the optimizer's name."""
        return self.name

    def minimize(
        self,
        loss: Loss,
        global_step: Variable | VarList = None,
        var_list: VarList = None,
        gate_gradients: int = BasicOptimizer.GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        name: str | None = None,
        grad_loss: GraphValue | None = None,
        *,
        accumulate: int | None = None,
    ) -> TrainOp:
        """Add the nodes that minimize a loss: compute_gradients, then apply_gradients.

        Args:
            loss: See `compute_gradients`; of several in a list the sum is minimized.
            global_step: See `apply_gradients`. A list, a tuple or a function is the `var_list`,
                which stands here in TensorFlow 2.
            var_list: See `compute_gradients`; so for the next three.
            gate_gradients: Without effect.
            aggregation_method: Without effect.
            colocate_gradients_with_ops: Without effect.
            name: See `apply_gradients`.
            grad_loss: See `compute_gradients`.
            accumulate: The mean of the gradients of this number of batches makes one update, that
                of one large batch; see `Accumulation` for how batches count. None is the
                optimizer's `gradient_accumulation_steps`, or 1.

        Returns:
            The step, for TrainingSession or build_step.

        Raises:
            GradientError: An operator between a variable and the loss has no gradient rule.
            OptimizerTypeError: What those two raise.
            OptimizerValueError: No variable has a gradient; and what those two raise.
        """
        del colocate_gradients_with_ops
        check_options(gate_gradients, aggregation_method)
        counter, var_list = _step_and_variables(global_step, var_list)
        loss = check_loss(loss)
        check_step(loss.graph, counter)
        steps = self.gradient_accumulation_steps if accumulate is None else accumulate
        accumulation = Accumulation(
            1 if steps is None else steps, conditional=getattr(self, "conditional", "if")
        )
        pairs = self.compute_gradients(loss, var_list=var_list, grad_loss=grad_loss)
        if all(gradient is None for gradient, _ in pairs):
            names = [variable.name for _, variable in pairs]
            raise OptimizerValueError(
                "No gradients provided for any variable, check your graph for operators that do "
                f"not support gradients, between variables {names} and loss {loss.name!r}",
                remedy="pass a loss that depends on a variable through differentiable operators",
            )
        pairs = accumulation.add(pairs)
        op = self.apply_gradients(pairs, global_step=counter, name=name)
        return accumulation.every(op)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Variable]],
        global_step: Variable | None = None,
        name: str | None = None,
        *,
        experimental_aggregate_gradients: bool = True,
        skip_gradients_aggregation: bool = False,
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
            experimental_aggregate_gradients: False leaves `reduce_gradients` out: the gradients are
                those of all shards.
            skip_gradients_aggregation: True does the same.

        Raises:
            OptimizerTypeError: A gradient is neither a value nor IndexedSlices nor None.
            OptimizerValueError: There are no pairs, or no gradients.
            UnsupportedError: What is to be updated is not a variable, or has a constraint and a
                sparse gradient.
        """
        reduces = check.flag("experimental_aggregate_gradients", experimental_aggregate_gradients)
        skips = check.flag("skip_gradients_aggregation", skip_gradients_aggregation)
        graph, pairs = check_pairs(grads_and_vars)
        check_step(graph, global_step)
        if reduces and not skips:
            pairs = self.reduce_gradients(pairs)
        return self.apply_reduced(pairs, global_step, name)

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
        gradients = [gradient for gradient, _ in pairs]
        return clip(gradients, self.settings)

    def get_updates(self, loss: Loss, params: Iterable[Variable]) -> list[TrainOp]:
        """Return the step that minimizes a loss, in a list: Keras's name for `minimize`.

        Raises:
            OptimizerValueError: What `get_gradients` and `apply_gradients` raise.
        """
        variables = flat_var_list(params)
        gradients = self.get_gradients(loss, variables)
        return [self.apply_gradients(zip(gradients, variables, strict=True))]

    @property
    def lr(self) -> Any:
        """The learning rate under its short name."""
        return self.learning_rate

    @lr.setter
    def lr(self, value: Rate) -> None:
        self.learning_rate = value

    def get_weights(self) -> list[np.ndarray]:
        """Return the present values of `weights`."""
        return [np.array(state.read()) for state in self.weights]

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Replace the present values of `weights`.

        Raises:
            OptimizerValueError: Their number or a shape differs; nothing is replaced then.
        """
        assign_all(self.name, self.weights, weights)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an optimizer like this one.

        They are numbers, texts and lists, but for a rule that the constructor was given as such.
        """
        config: dict[str, Any] = {}
        for key, parameter in inspect.signature(type(self)).parameters.items():
            names = LIMITS if parameter.kind is parameter.VAR_KEYWORD else (key,)
            config.update({name: getattr(self, name) for name in names})
        config.update(self.settings.changed())
        if isinstance(self.learning_rate, schedules.Schedule):
            config["learning_rate"] = self.learning_rate.get_config()
        return config

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """Return an optimizer made from what `get_config` returned.

        Args:
            config: Is not changed.
            custom_objects: Name -> class of a schedule that is not this package's.

        Raises:
            OptimizerTypeError: It is not a mapping, or a key is missing or unknown.
        """
        settings = arguments(cls, flat(config), OptimizerTypeError)
        schedules.restore_rate(settings, custom_objects)
        return cls(**settings)


def _constructor(declared: Callable[..., None], defaults: Mapping[str, Any]) -> Any:
    """Return a constructor that makes an optimizer with the rule of its class.

    What the signature has besides the learning rate, `use_locking`, `name` and keywords that
    `Optimizer` takes are hyperparameters of the rule, in our spelling or in Keras's.

    Args:
        declared: Has the signature; one that was made here too.
        defaults: Argument -> a default in place of the declared one.
    """
    parameters = inspect.signature(declared).parameters
    *_, keywords = parameters
    signature = inspect.Signature(
        [p.replace(default=defaults.get(name, p.default)) for name, p in parameters.items()]
    )

    @wraps(declared)
    def construct(*args: Any, **kwargs: Any) -> None:
        inspect.unwrap(declared)(*args, **kwargs)  # says which argument is missing or unknown
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        optimizer, rest = given.pop("self"), given.pop(keywords)
        rest |= {name: given.pop(name) for name in ("use_locking", "name", "learning_rate")}
        known = inspect.signature(optimizer._rule).parameters
        own = {name if name in known else NAMES[name]: value for name, value in given.items()}
        Optimizer.__init__(optimizer, rule=optimizer._rule(**own), **rest)

    vars(construct)["__signature__"] = signature
    return construct


def _step_and_variables(
    global_step: Variable | VarList, var_list: VarList
) -> tuple[Variable | None, VarList]:
    """Return the global step and the variables of a call in the form of TensorFlow 1 or 2."""
    if global_step is None or isinstance(global_step, State | GraphValue | str):
        return global_step, var_list
    if not isinstance(global_step, list | tuple) and not callable(global_step):
        return cast(Any, global_step), var_list  # which `check_step` refuses
    if var_list is not None:
        raise OptimizerTypeError(
            "two lists of variables",
            where="minimize",
            found="a list in the place of global_step, and var_list",
            remedy="pass grad_loss and name by their names, behind one list of variables",
        )
    return None, global_step


def overrides(optimizer: Optimizer, method: str) -> bool:
    """Return whether an optimizer has a method of its own in place of one of Optimizer."""
    bound = getattr(optimizer, method)
    return getattr(bound, "__func__", None) is not getattr(Optimizer, method)
