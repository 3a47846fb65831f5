"""The base class of optimizers, with the meaning that it has in TensorFlow 1's graph mode."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, ClassVar, Self, cast

import numpy as np

from amp_rewrite.errors import OptimizerTypeError, OptimizerValueError
from amp_rewrite.training.graph.training_graph import GraphValue, State
from amp_rewrite.training.optimizers import argument_checks as check
from amp_rewrite.training.optimizers.apply_updates import (
    StepUpdates,
    check_pairs,
    check_step,
    counter_of,
    step_counter,
)
from amp_rewrite.training.optimizers.clipping import clip
from amp_rewrite.training.optimizers.compute_gradients import (
    Loss,
    check_float,
    check_grad_loss,
    check_loss,
    check_options,
    chosen_variables,
    flat_var_list,
    raw_gradients,
)
from amp_rewrite.training.optimizers.config import LIMITS, NAMES, HasParts, arguments, flat, taken
from amp_rewrite.training.optimizers.gradient import Gradient, wrap
from amp_rewrite.training.optimizers.gradient_accumulation import Accumulation
from amp_rewrite.training.optimizers.learning_rate import (
    LEARNING_RATE,
    LearningRate,
    MultipliedRate,
    Rate,
    Schedule,
    restore_rate,
)
from amp_rewrite.training.optimizers.slots import OptimizerStates, Variable, VarList, assign_all
from amp_rewrite.training.optimizers.train_op import TrainOp, averaged
from amp_rewrite.training.optimizers.update_rule import UpdateRule


class Optimizer(HasParts):
    """Builds training steps: gradients of a loss, and the updates that minimize it.

    Its rule says how one step changes a variable: `Optimizer(rule=...)` with an `UpdateRule` is an
    optimizer of one's own. A child may override `compute_gradients`, `apply_gradients` and
    `get_gradients`; optimizers that wrap it call them.

    Attributes:
        rule: How one step changes a variable. It and the settings cannot be set once gradients
            have been applied.
        use_locking: What the constructor was given.
        settings: How it clips, averages and accumulates. The fields of rule and settings are
            attributes of the optimizer too.
    """

    GATE_NONE: ClassVar[int] = 0
    GATE_OP: ClassVar[int] = 1
    GATE_GRAPH: ClassVar[int] = 2

    supports_loss_scaling: bool = True
    """Whether a loss scale may multiply the gradients; not if a collective is not linear."""

    scales_loss: bool = False
    """Whether it, or an optimizer inside it, multiplies the loss by a loss scale."""

    _rule: ClassVar[Callable[..., UpdateRule]]
    """Makes the rule of the hyperparameters."""

    def __init_subclass__(
        cls, *, rule: Callable[..., UpdateRule] | None = None, **defaults: Any
    ) -> None:
        """Make the constructor from its signature; `defaults` replace those of the arguments."""
        super().__init_subclass__()
        if rule is not None:
            cls._rule = staticmethod(rule)
        if rule is not None or defaults:
            cls.__init__ = _constructor(cls.__init__, defaults)

    def __init__(
        self,
        use_locking: bool = False,
        name: str = "",
        *,
        rule: UpdateRule | None = None,
        learning_rate: Rate = 0.01,
        **options: Any,
    ) -> None:
        """Name the optimizer and give it a rule; children have hyperparameters in front.

        Args:
            use_locking: Without effect: an ONNX step updates no tensor in place.
            name: Not empty; slots are named after it.
            rule: The rule; without one, gradients can be computed but not applied.
            learning_rate: A number of at least 0, or a schedule.
            **options: See `Settings`; and hyperparameters in Keras's spelling, such as `beta_1`.

        Raises:
            OptimizerTypeError: A keyword is unknown, or an argument has a wrong type.
            OptimizerValueError: An argument is impossible.
        """
        check.optimizer_name(name)
        self.use_locking = use_locking
        self.rule = UpdateRule() if rule is None else rule
        self.rule, self.settings = taken(name, self.rule, options)
        self._rate = LearningRate(name, learning_rate)
        self._states = OptimizerStates(name)

    @property
    def name(self) -> str:
        """The optimizer's name."""
        return self._states.optimizer

    @property
    def touches_rows_only(self) -> bool:
        """Whether a sparse gradient changes the touched rows of variable and slots only."""
        return self.rule.touches_rows_only

    def member(
        self,
        *,
        group: str = "member",
        learning_rate: Rate | None = None,
        rate_multiplier: float | None = None,
        weight_decay: float | None = None,
        **limits: float,
    ) -> Self:
        """Return an optimizer for a `ParameterGroup`, which shares slots and other states."""
        member = copy.copy(self)
        if learning_rate is not None and rate_multiplier is not None:
            raise OptimizerValueError(
                "settings that exclude each other",
                where=f"group {group!r}",
                found="learning_rate and rate_multiplier",
                remedy="leave one of them out",
            )
        if learning_rate is not None:
            member._rate = LearningRate(self.name, learning_rate, f"{LEARNING_RATE}/{group}")
        elif rate_multiplier is not None:
            member._rate = MultipliedRate(self._rate, rate_multiplier)
        if weight_decay is not None:
            if not hasattr(self.rule, "weight_decay"):
                raise OptimizerValueError(
                    "the optimizer has no weight decay",
                    where=self.name,
                    found=f"weight_decay={weight_decay}",
                    remedy="use one that has, such as AdamW or Momentum",
                )
            vars(member)["rule"] = replace(self.rule, weight_decay=weight_decay)  # pyright: ignore[reportCallIssue] not every rule has it
        if limits:
            own = replace(self.settings, **{**dict.fromkeys(LIMITS), **limits})
            vars(member)["settings"] = own
        return member

    def compute_gradients(
        self,
        loss: Loss,
        var_list: VarList = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: GraphValue | None = None,
    ) -> list[tuple[Any, State]]:
        """Add the nodes that compute the gradients of a loss.

        Args:
            loss: A floating-point value, or a callable that returns one. The elements of a loss
                that is not a scalar are summed.
            var_list: A state, a value, a name, or lists of these. None is every floating-point
                initializer that the loss depends on and that is not `amp_rewrite.frozen`.
            gate_gradients: Without effect: nodes read the state before the step.
            aggregation_method: Without effect: one Sum in the widest type adds gradients.
            colocate_gradients_with_ops: Without effect: ONNX assigns no devices.
            grad_loss: The gradient of the loss, in its shape; None is ones.

        Returns:
            (gradient, variable) pairs. A gradient is a GraphValue, IndexedSlices of GraphValues, or
            None if the loss does not depend on the variable, which is a State. Inputs and other
            values have gradients too; they are GraphValues.

        Raises:
            GradientError: An operator between variable and loss has no gradient rule.
            OptimizerTypeError: An argument has a wrong type.
            OptimizerValueError: An argument is impossible, or there is no variable.
        """
        del colocate_gradients_with_ops
        check_options(gate_gradients, aggregation_method)
        value = check_loss(loss)
        check_float("loss", value.name, value.dtype)
        variables = chosen_variables(value.graph, value, var_list)
        return self._gradients_of(value, variables, check_grad_loss(value, grad_loss))

    def _gradients_of(
        self, loss: GraphValue, variables: Sequence[Any], grad_loss: GraphValue | None
    ) -> list[tuple[Any, State]]:
        """Do what `compute_gradients` does, with arguments that it has checked."""
        graph = self._states.graph = loss.graph
        gradients = raw_gradients(graph, loss, variables, grad_loss)
        return [(wrap(graph, g), v) for g, v in zip(gradients, variables, strict=True)]

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
        plain = name is None or (isinstance(name, str) and not name)  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        scope = self.name if plain else check.label("the step", name)
        graph, pairs = check_pairs(grads_and_vars)
        states, is_own = self._states, global_step is None
        counter = step_counter(graph, states.given_counter if is_own else global_step, new=is_own)
        states.graph, states.counter, states.built = graph, counter, True
        gradients = [gradient for gradient, _ in pairs]
        clipped = clip(gradients, self.settings)
        step = StepUpdates(self.rule, self._rate, states, graph, scope=scope, counter=counter)
        for gradient, (_, variable) in zip(clipped, pairs, strict=True):
            step.update(gradient, variable)
        op = step.finish(gradients)
        if not self.settings.use_ema:
            return op
        return averaged(op, decay=self.settings.ema_momentum, start=1)

    def get_slot(
        self, var: Variable, name: str | None = None, *, slot_name: str | None = None
    ) -> State | None:
        """Return the slot called `name`, or `slot_name`, of a variable; None if there is none."""
        if (name is None) == (slot_name is None):
            raise OptimizerTypeError("get_slot takes one of name and slot_name")
        wanted = check.label("a slot", slot_name if name is None else name)
        variable = self._states.variable(var)
        return None if variable is None else self._states.slot(variable, wanted)

    def get_slot_names(self) -> list[str]:
        """Return the names of the slots made so far, sorted."""
        return self._states.slot_names()

    def variables(self) -> list[State]:
        """Return slots and non-slot states of the graph built on last, sorted by name."""
        return sorted(self._states.of_graph(), key=lambda state: state.name)

    def add_slot(self, var: Variable, slot_name: str, initializer: Any = "zeros") -> State:
        """Return a slot of a variable, for steps that are built afterwards; made if missing.

        Args:
            var: The variable.
            slot_name: The slot's name for get_slot.
            initializer: "zeros", "ones", a number, an array of the variable's shape, or a function
                of shape and type.

        Raises:
            OptimizerValueError: The variable is unknown, or the initializer does not fit.
        """
        variable = self._states.variable(var)
        check.label("a slot", slot_name)
        if variable is None:
            raise OptimizerValueError("no such variable", where=self.name, found=repr(var))
        self._states.graph = variable.graph
        return self._states.add_slot(variable, slot_name, initializer, kept=True)

    def add_weight(
        self,
        name: str,
        shape: Sequence[int] = (),
        dtype: Any = None,
        initializer: Any = "zeros",
        trainable: bool = False,
    ) -> State:
        """Return a new state that belongs to no variable, for steps that are built afterwards.

        `dataclasses.replace(op, updates={**op.updates, weight.name: value})` updates it.

        Args:
            name: Its name; a number is appended if that is taken.
            shape: The lengths of its axes.
            dtype: A numpy type; None is float32.
            initializer: "zeros", "ones", a number, an array, or a function of shape and type.
            trainable: Whether gradients can be taken with respect to it.

        Raises:
            OptimizerTypeError: The name, the shape or the type is invalid.
            OptimizerValueError: No gradients were computed yet, or the initializer does not fit.
        """
        return self._states.add_weight(name, shape, dtype, initializer, trainable=trainable)

    @property
    def learning_rate(self) -> Any:
        """The present learning rate: a number, or the schedule.

        A number that is set holds from the next step on; a schedule continues from it.
        """
        return self._rate.read()

    @learning_rate.setter
    def learning_rate(self, value: Rate) -> None:
        self._rate.assign(value)

    @property
    def iterations(self) -> State | None:
        """The state that counts the steps; None before gradients are applied.

        Before gradients are applied, it can be set to an integer scalar of the model, its name, or
        a new name: the counter of `apply_gradients` without a `global_step`.
        """
        return self._states.counter

    @iterations.setter
    def iterations(self, value: Variable) -> None:
        if self._states.built:
            raise OptimizerValueError(
                "Cannot set `iterations` to a new Variable after the Optimizer weights have been "
                "created",
                where=self.name,
                found=repr(value),
                remedy="call iterations.assign(number) to go on from another number",
            )
        if isinstance(value, str):
            graph = self._states.graph
            check.label("the iterations", value)
            self._states.counter = None if graph is None else check_step(graph, value, new=True)
        else:
            self._states.counter = counter_of(value)
        self._states.given_counter = value

    @property
    def weights(self) -> list[State]:
        """The iterations, then slots and non-slot states in order of creation."""
        own, counter = self._states.of_graph(), self._states.counter
        elsewhere = counter is None or self._states.graph not in (counter.graph, None)
        return own if counter is None or elsewhere else [counter, *own]

    def get_name(self) -> str:
        """Return the optimizer's name."""
        return self.name

    def minimize(
        self,
        loss: Loss,
        global_step: Variable | VarList = None,
        var_list: VarList = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        name: str | None = None,
        grad_loss: GraphValue | None = None,
        *,
        accumulate: int | None = None,
    ) -> TrainOp:
        """Add the nodes that minimize a loss: compute_gradients, then apply_gradients.

        Args:
            loss: See `compute_gradients`.
            global_step: See `apply_gradients`. A list or a function here is the `var_list`, as in
                TensorFlow 2.
            var_list: See `compute_gradients`.
            gate_gradients: Without effect.
            aggregation_method: Without effect.
            colocate_gradients_with_ops: Without effect.
            name: See `apply_gradients`.
            grad_loss: See `compute_gradients`.
            accumulate: The number of batches whose mean gradients make one update; see
                `Accumulation`. None is `gradient_accumulation_steps`, or 1.

        Returns:
            The step, for TrainingSession or build_step.

        Raises:
            GradientError: An operator between variable and loss has no gradient rule.
            OptimizerTypeError: An argument has a wrong type.
            OptimizerValueError: An argument is impossible, or no variable has a gradient.
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
        """Add the nodes that update variables: `reduce_gradients`, then `apply_reduced`.

        Args:
            grads_and_vars: (gradient, variable) pairs; None leaves a variable as it is. Values of
                equal indices of a sparse gradient are summed.
            global_step: The integer state that grows by 1: a state, a value or a name. None is the
                graph's own, "global_step".
            name: The scope of the nodes; by default the optimizer's name.
            experimental_aggregate_gradients: False omits `reduce_gradients`.
            skip_gradients_aggregation: True omits `reduce_gradients`.

        Raises:
            OptimizerTypeError: A gradient is neither a value nor IndexedSlices nor None.
            OptimizerValueError: There are no pairs, or no gradients.
            UnsupportedError: A variable is no initializer, or is constrained and sparse.
        """
        reduces = check.flag("experimental_aggregate_gradients", experimental_aggregate_gradients)
        skips = check.flag("skip_gradients_aggregation", skip_gradients_aggregation)
        graph, pairs = check_pairs(grads_and_vars)
        check_step(graph, global_step)
        if reduces and not skips:
            pairs = self.reduce_gradients(pairs)
        return self.apply_reduced(pairs, global_step, name)

    def get_gradients(self, loss: Loss, params: Iterable[Variable]) -> list[Any]:
        """Return the gradient of each of `params`, clipped by the optimizer's limit."""
        pairs = self.compute_gradients(loss, var_list=params)
        missing = [variable.name for gradient, variable in pairs if gradient is None]
        if missing:
            raise OptimizerValueError(
                "a gradient is None: the loss does not depend on the variable", where=missing
            )
        return clip([gradient for gradient, _ in pairs], self.settings)

    def get_updates(self, loss: Loss, params: Iterable[Variable]) -> list[TrainOp]:
        """Return the step that minimizes a loss, in a list: Keras's name for `minimize`."""
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
        """Replace the present values of `weights`; a wrong shape is an OptimizerValueError."""
        assign_all(self.name, self.weights, weights)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an optimizer like this one; JSON can hold most."""
        config: dict[str, Any] = {}
        for key, parameter in inspect.signature(type(self)).parameters.items():
            names = LIMITS if parameter.kind is parameter.VAR_KEYWORD else (key,)
            config.update({name: getattr(self, name) for name in names})
        config.update(self.settings.changed())
        if isinstance(self.learning_rate, Schedule):
            config["learning_rate"] = self.learning_rate.get_config()
        return config

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """Return an optimizer made from the result of `get_config`, or Keras's.

        Raises:
            OptimizerTypeError: It is not a mapping, or a key is missing or unknown.
        """
        settings = arguments(cls, flat(config), OptimizerTypeError)
        restore_rate(settings, custom_objects)
        return cls(**settings)


def _constructor(declared: Callable[..., None], defaults: Mapping[str, Any]) -> Any:
    """Return a constructor of the declared signature that makes the rule of the other arguments."""
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
    """Return the global step and the variables of a call in TensorFlow 1's or 2's form."""
    if global_step is None or isinstance(global_step, State | GraphValue | str):
        return global_step, var_list
    if not isinstance(global_step, list | tuple) and not callable(global_step):
        return cast(Any, global_step), var_list  # which `check_step` refuses
    if var_list is not None:
        raise OptimizerTypeError(
            "two lists of variables",
            where="minimize",
            found="a list in the place of global_step, and var_list",
            remedy="pass grad_loss and name by their names, after one list of variables",
        )
    return None, global_step


def overrides(optimizer: Optimizer, method: str) -> bool:
    """Return whether an optimizer's class has a method of its own."""
    bound = getattr(optimizer, method)
    return getattr(bound, "__func__", None) is not getattr(Optimizer, method)
