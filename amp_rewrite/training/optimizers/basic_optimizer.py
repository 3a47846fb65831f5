"""What an optimizer does itself; all else that it can do is made of that."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar, Self

from amp_rewrite.errors import OptimizerTypeError, OptimizerValueError
from amp_rewrite.training.graph.training_graph import GraphValue, State
from amp_rewrite.training.optimizers import argument_checks as check
from amp_rewrite.training.optimizers.apply_updates import (
    StepUpdates,
    check_pairs,
    check_step,
    counter_of,
)
from amp_rewrite.training.optimizers.clipping import clip
from amp_rewrite.training.optimizers.compute_gradients import (
    Loss,
    check_float,
    check_grad_loss,
    check_loss,
    check_options,
    chosen_variables,
    raw_gradients,
)
from amp_rewrite.training.optimizers.config import ELSEWHERE, LIMITS, NAMES, Settings, taken
from amp_rewrite.training.optimizers.gradient import Gradient, wrap
from amp_rewrite.training.optimizers.learning_rate import (
    LEARNING_RATE,
    LearningRate,
    MultipliedRate,
    Rate,
)
from amp_rewrite.training.optimizers.moving_average import Average, averaged
from amp_rewrite.training.optimizers.slots import OptimizerStates, Variable, VarList
from amp_rewrite.training.optimizers.train_op import TrainOp
from amp_rewrite.training.optimizers.update_rule import UpdateRule

_PARTS: dict[str, type] = {"rule": UpdateRule, "settings": Settings}
"""The attributes of an optimizer that are built into steps -> their classes."""


class BasicOptimizer:
    """Gradients, updates, and the settings and states that they are made with.

    Its attributes are those of `Optimizer`.
    """

    GATE_NONE: ClassVar[int] = 0
    GATE_OP: ClassVar[int] = 1
    GATE_GRAPH: ClassVar[int] = 2

    supports_loss_scaling: bool = True
    """Whether a loss scale may multiply the gradients on their way; False for a collective that
    does more with them than a linear function, such as compressing them."""

    scales_loss: bool = False
    """Whether it, or an optimizer inside it, multiplies the loss by a loss scale."""

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
            use_locking: Accepted for compatibility: an ONNX step never updates a tensor in place,
                so that there is nothing to lock.
            name: Not empty; slots are named after it.
            rule: The rule; without one, gradients can be computed but not applied.
            learning_rate: A number of at least 0, or a schedule.
            **options: See `Settings`; and Keras's spelling of the hyperparameters (`beta_1`,
                `beta_2`, `rho`, `nesterov`).

        Raises:
            OptimizerTypeError: A keyword is unknown, or a hyperparameter is not a number.
            OptimizerValueError: The name is empty, or a hyperparameter is impossible.
        """
        check.optimizer_name(name)
        self.use_locking = use_locking
        self.rule = UpdateRule() if rule is None else rule
        self.rule, self.settings = taken(name, self.rule, options)
        self._rate = LearningRate(name, learning_rate)
        self._states = OptimizerStates(name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; refuse one that a step is made of, once there is a step.

        Attributes of a user's own are kept, but what looks like a hyperparameter has to be one.
        """
        name = self._ours(name)
        meant = None if hasattr(type(self), name) else self._meant(name)
        if meant is not None:
            raise OptimizerValueError(
                f"{type(self).__name__} has no hyperparameter of this name",
                where=name,
                expected=repr(meant),
            )
        states = vars(self).get("_states")
        if states is not None and states.built and is_part(self, name):
            raise OptimizerValueError(
                f"{name} is part of the step, which has been built",
                where=self.name,
                remedy="set it before gradients are applied, or make another optimizer; only the "
                "learning rate can change between steps",
            )
        part = None if hasattr(type(self), name) else parts(self).get(name)
        if part is not None:
            name, value = part, replace(vars(self)[part], **{name: value})
        if name in _PARTS and not isinstance(value, _PARTS[name]):
            raise OptimizerTypeError(
                f"{name} must be of another class",
                found=repr(value),
                expected=_PARTS[name].__name__,
            )
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        """Return a hyperparameter or a setting, by its name or by the one that Keras has for it."""
        ours = self._ours(name)
        part = parts(self).get(ours)
        if part is not None:
            return getattr(vars(self)[part], ours)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        """Return the names of all attributes, hyperparameters and settings among them."""
        return sorted({*super().__dir__(), *parts(self)})

    def _ours(self, name: str) -> str:
        """Return the hyperparameter that Keras has under a name, or the name."""
        own, ours = parts(self), NAMES.get(name)
        return name if ours is None or name in own or ours not in own else ours

    def _meant(self, name: str) -> str | None:
        """Return the hyperparameter that a name denotes which the optimizer lacks, or None."""
        own = {n.replace("_", ""): n for n in parts(self)}
        if name in own.values():
            return None
        meant = ELSEWHERE.get(name, name).split()[0]
        return own.get(meant.replace("_", "").lower())

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
        """Return an optimizer for a group of this one's variables: the same but for what is given.

        Slots and states that belong to no variable are shared, and the learning rate too unless the
        group has one of its own.

        Args:
            group: The name of the group, after which the state of its learning rate is named.
            learning_rate: See `ParameterGroup`; so for the next two.
            rate_multiplier: See `ParameterGroup`.
            weight_decay: See `ParameterGroup`.
            **limits: A limit of its own to clip to; see `Settings`.
        """
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
            loss: A floating-point value, or a callable that returns one; or several in a list,
                of which the sum is differentiated. Of one that is not a scalar, it is the sum of
                its elements.
            var_list: A variable, or variables in a list or in lists inside it: states, values or
                names; None is every floating-point initializer that the loss depends on and that
                is not frozen (`amp_rewrite.frozen`). Any other value of the model, an input too,
                has a gradient as well, which `apply_gradients` refuses.
            gate_gradients: GATE_NONE, GATE_OP or GATE_GRAPH. Without effect; see `Optimizer`.
            aggregation_method: A number of TensorFlow's AggregationMethod, or None. Without effect:
                gradients that meet are added by one Sum in the widest of their types.
            colocate_gradients_with_ops: Without effect: ONNX assigns no devices.
            grad_loss: The gradient of what comes behind the loss, in its shape, in place of ones.

        Returns:
            (gradient, variable) for each variable: the gradient is a GraphValue, IndexedSlices
            whose fields are GraphValues, or None where the loss does not depend on the variable.
            What is not a variable stands there as a GraphValue.

        Raises:
            GradientError: An operator on the way has no gradient rule.
            OptimizerTypeError: The loss is not a value.
            OptimizerValueError: An argument is impossible, there is no variable, or the loss or a
                variable is not floating-point.
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
        scope = self._states.optimizer if plain else check.label("the step", name)
        graph, pairs = check_pairs(grads_and_vars)
        counter = self._states.given_counter if global_step is None else global_step
        check_step(graph, counter, new=global_step is None)
        self._states.graph = graph
        gradients = [gradient for gradient, _ in pairs]
        clipped = clip(gradients, self.settings)
        rule, rate, states = self.rule, self._rate, self._states
        step = StepUpdates(rule, rate, states, graph, scope=scope, global_step=counter)
        self._states.counter, self._states.built = step.counter, True
        for gradient, (_, variable) in zip(clipped, pairs, strict=True):
            step.update(gradient, variable)
        op = step.finish(gradients)
        if not self.settings.use_ema:
            return op
        decay = self.settings.ema_momentum
        return averaged(op, Average(decay=decay, warm_up=False, start=1, every=1))

    def get_slot(
        self, var: Variable, name: str | None = None, *, slot_name: str | None = None
    ) -> State | None:
        """Return the slot called `name`, or `slot_name`, of a variable; None if there is none."""
        wanted = check.label("a slot", check.either("get_slot", name=name, slot_name=slot_name))
        variable = self._states.variable(var)
        return None if variable is None else self._states.slot(variable, wanted)

    def get_slot_names(self) -> list[str]:
        """Return the names of the slots made so far, sorted."""
        return self._states.slot_names()

    def variables(self) -> list[State]:
        """Return slots and non-slot states of the graph built on last, sorted by name."""
        return sorted(self._states.of_graph(), key=lambda state: state.name)

    def add_slot(self, var: Variable, slot_name: str, initializer: Any = "zeros") -> State:
        """Return a slot of a variable, which is made if there is none.

        Args:
            var: The variable.
            slot_name: The slot's name for get_slot.
            initializer: "zeros", "ones", a number, an array of the variable's shape, or a function
                of shape and type.

        A step that is built afterwards has it, whether or not it updates it, and so have
        checkpoints.

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
        """Return a new state that belongs to no variable, of the graph built on last.

        A step that is built afterwards has it, and so have checkpoints. `dataclasses.replace(op,
        updates={**op.updates, weight.name: value})` updates it.

        Args:
            name: Its name; a number is appended if that is taken.
            shape: The lengths of its axes.
            dtype: A numpy type; None is float32.
            initializer: "zeros", "ones", a number, an array, or a function of shape and type.
            trainable: Whether it is a variable that gradients can be taken with respect to.

        Raises:
            OptimizerTypeError: The name, the shape or the type is none.
            OptimizerValueError: No gradients were computed yet, or the initializer does not fit.
        """
        return self._states.add_weight(name, shape, dtype, initializer, trainable=trainable)

    @property
    def learning_rate(self) -> Any:
        """The present learning rate: a number, or the schedule.

        Setting a number takes effect from the next step on, in running sessions too; it ends
        nothing: a schedule goes on, from the new rate.
        """
        return self._rate.read()

    @learning_rate.setter
    def learning_rate(self, value: Rate) -> None:
        self._rate.assign(value)

    @property
    def iterations(self) -> State | None:
        """The state that counts the steps; None before gradients are applied.

        Setting it chooses the state that `apply_gradients` counts in without a `global_step`: an
        integer scalar of the model or its name, or a new name, before gradients are applied.
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


def parts(optimizer: BasicOptimizer) -> dict[str, str]:
    """Return hyperparameter or setting -> the attribute of an optimizer that has it.

    A wrapper has none of its own.
    """
    own = vars(optimizer)
    return {entry.name: part for part in _PARTS if part in own for entry in fields(own[part])}


def is_part(optimizer: BasicOptimizer, name: str) -> bool:
    """Return whether an attribute of an optimizer is built into steps."""
    return name in _PARTS or name in parts(optimizer)
