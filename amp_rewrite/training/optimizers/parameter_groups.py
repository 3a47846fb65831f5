"""Variables that are trained in different ways by one backward pass."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

from amp_rewrite.errors import OptimizerTypeError, OptimizerValueError
from amp_rewrite.training.graph.selection import Selection, selected
from amp_rewrite.training.graph.training_graph import State
from amp_rewrite.training.optimizers import argument_checks as check
from amp_rewrite.training.optimizers.apply_updates import Pairs, check_pairs
from amp_rewrite.training.optimizers.config import arguments, mapping, parts
from amp_rewrite.training.optimizers.gradient import Gradient
from amp_rewrite.training.optimizers.learning_rate import Rate, Schedule, restore_rate
from amp_rewrite.training.optimizers.optimizer import Optimizer
from amp_rewrite.training.optimizers.slots import Variable
from amp_rewrite.training.optimizers.train_op import SHARED, TrainOp, merged
from amp_rewrite.training.optimizers.wrapper import OptimizerWrapper

_REST = "default"
"""The name of the member that trains the variables of no group."""


@dataclass(frozen=True, kw_only=True)
class ParameterGroup:
    """Settings for some of the variables.

    Attributes:
        variables: Patterns of names, words, a regular expression, a function of a variable, or a
            list of these. A pattern that matches nothing is an error.
        name: The group's name; by default group_1, group_2, ...
        learning_rate: Its own learning rate: a number or a schedule.
        rate_multiplier: A factor of the optimizer's learning rate, schedule included.
    """

    variables: Selection
    name: str | None = None
    learning_rate: Rate | None = None
    rate_multiplier: float | None = None
    weight_decay: float | None = None
    clipnorm: float | None = None
    clipvalue: float | None = None
    global_clipnorm: float | None = None


class ParameterGroups(OptimizerWrapper):
    """An optimizer whose groups of variables have settings of their own, as in PyTorch.

        optimizer = ParameterGroups(
            AdamW(LinearWarmUp(1e-4, 500), weight_decay=0.01),
            [
                ParameterGroup(variables="encoder.*", rate_multiplier=0.1),
                ParameterGroup(variables="head.*", learning_rate=0.01),
            ],
            no_decay="bias,norm",
        )

    All groups share one backward pass, and the loss scale of a LossScaleOptimizer around them. The
    optimizer itself trains the other variables. A group's own learning rate is the state
    `learning_rate/<name>`, which `members[name].learning_rate` sets.

    Attributes:
        members: Name of a group -> its optimizer; "default" trains the other variables.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        groups: Iterable[ParameterGroup | Mapping[str, Any]] = (),
        *,
        no_decay: Selection = (),
    ) -> None:
        """Make the members.

        Args:
            optimizer: Trains the variables of no group. LossScaleOptimizer and CrossShardOptimizer
                go around the groups.
            groups: Groups, or dictionaries of their settings. No variable may be in two.
            no_decay: Variables of any group without weight decay: usually "bias,norm".

        Raises:
            OptimizerTypeError: An argument has a wrong type.
            OptimizerValueError: A group is impossible, two have one name, or `no_decay` has no
                weight decay to turn off.
        """
        super().__init__(optimizer)
        _check_plain(optimizer)
        self._groups = [_group(entry) for entry in check.listed(groups, "groups")]
        self._no_decay = no_decay
        self.members = {_REST: optimizer}
        for number, group in enumerate(self._groups, 1):
            name = check.label("a group", f"group_{number}" if group.name is None else group.name)
            if name in self.members:
                raise OptimizerValueError("two groups have one name", found=repr(name))
            settings = {k: v for k, v in _settings(group).items() if k not in ("variables", "name")}
            self.members[name] = optimizer.member(group=name, **settings)
        self._exempt = {name: _without_decay(member) for name, member in self.members.items()}
        is_empty = isinstance(no_decay, Collection) and len(no_decay) == 0  # pyright: ignore[reportUnknownArgumentType] of anything
        if no_decay is not None and not is_empty and self._exempt == self.members:
            raise OptimizerValueError(
                "no weight decay that variables could be spared",
                where="no_decay",
                found=type(optimizer).__name__,
                remedy="use an optimizer with weight_decay above 0, such as AdamW",
            )

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a member, as `OptimizerWrapper` does; refuse values that each group has."""
        if not name.startswith("_") and name in parts(self.inner_optimizer):
            raise OptimizerValueError(
                f"{name} of groups cannot be set at once",
                where=self.get_name(),
                found=f"{len(self.members)} members, which have values of their own",
                remedy="set it before ParameterGroups is made, or on each of `members`",
            )
        super().__setattr__(name, value)

    @property
    def touches_rows_only(self) -> bool:
        """Whether a member's sparse gradients change the touched rows only."""
        return any(member.touches_rows_only for member in self.members.values())

    def apply_reduced(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Variable]],
        global_step: Variable | None = None,
        name: str | None = None,
    ) -> TrainOp:
        """Let every member apply the gradients of its variables; see `Optimizer.apply_gradients`.

        Raises:
            OptionError: A pattern matches none of the variables.
            OptimizerValueError: A variable is in two groups.
        """
        _, pairs = check_pairs(grads_and_vars)
        steps = [
            member.apply_gradients(part, global_step, name)
            for member, part in self._parts(pairs)
            if any(gradient is not None for gradient, _ in part)
        ]
        return merged(steps, (*SHARED, "non_slot"))

    def _parts(self, pairs: Pairs) -> list[tuple[Optimizer, Pairs]]:
        """Return the members and the pairs that each trains."""
        states = [variable for _, variable in pairs]
        names = self._names(states)
        spared = {v.name for v in selected(states, self._no_decay, "no_decay")}
        parts: list[tuple[Optimizer, Pairs]] = []
        for name, member in self.members.items():
            own = [pair for pair in pairs if names[pair[1].name] == name]
            exempt = self._exempt[name]
            if exempt is member:
                parts.append((member, own))
                continue
            parts.append((member, [p for p in own if p[1].name not in spared]))
            parts.append((exempt, [p for p in own if p[1].name in spared]))
        return parts

    def _names(self, variables: Sequence[State]) -> dict[str, str]:
        """Return variable -> the name of its group."""
        names = {v.name: _REST for v in variables}
        for group, name in zip(self._groups, list(self.members)[1:], strict=True):
            for variable in selected(variables, group.variables, f"group {name!r}"):
                if names[variable.name] != _REST:
                    raise OptimizerValueError(
                        "a variable is in two groups",
                        where=variable.name,
                        found=f"{names[variable.name]!r} and {name!r}",
                        remedy="let patterns exclude each other",
                    )
                names[variable.name] = name
        return names

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make such groups."""
        groups = [_settings(group) for group in self._groups]
        for group in groups:
            if isinstance(group.get("learning_rate"), Schedule):
                group["learning_rate"] = group["learning_rate"].get_config()
        return {**super().get_config(), "groups": groups, "no_decay": self._no_decay}

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """Return groups made from what `get_config` returned; see `OptimizerWrapper`."""
        settings = arguments(cls, config, OptimizerTypeError)
        groups = [mapping(g, "groups", OptimizerTypeError) for g in settings.get("groups", ())]
        for group in groups:
            restore_rate(group, custom_objects)
        settings["groups"] = groups
        return super().from_config(settings, custom_objects)


def _check_plain(optimizer: Optimizer) -> None:
    """Refuse an optimizer that groups cannot vary."""
    where = "ParameterGroups"
    if isinstance(optimizer, OptimizerWrapper):
        raise OptimizerValueError(
            "groups are trained by an optimizer that wraps no other one",
            where=where,
            found=type(optimizer).__name__,
            remedy=f"put the {type(optimizer).__name__} around ParameterGroups",
        )
    if optimizer.use_ema:
        raise OptimizerValueError(
            "the optimizer of groups averages no weights",
            where=where,
            found="use_ema=True",
            remedy="put WeightAverage around ParameterGroups",
        )


def _group(entry: object) -> ParameterGroup:
    """Return a group, given itself or its settings."""
    if isinstance(entry, ParameterGroup):
        return entry
    return ParameterGroup(**arguments(ParameterGroup, entry, OptimizerTypeError))


def _without_decay(member: Optimizer) -> Optimizer:
    """Return a member without weight decay; itself if it has none."""
    return member.member(weight_decay=0.0) if getattr(member.rule, "weight_decay", 0) else member


def _settings(group: ParameterGroup) -> dict[str, Any]:
    """Return the settings of a group that are not None."""
    settings = {f.name: getattr(group, f.name) for f in fields(group)}
    return {key: value for key, value in settings.items() if value is not None}
