"""Variables that are trained in different ways by one backward pass."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self, cast

from amp_rewrite.errors import OptimizerTypeError, OptimizerValueError
from amp_rewrite.training.graph.selection import Selection, selected
from amp_rewrite.training.graph.training_graph import State
from amp_rewrite.training.optimizers import argument_checks as check
from amp_rewrite.training.optimizers import schedules
from amp_rewrite.training.optimizers.apply_updates import Pairs, check_pairs
from amp_rewrite.training.optimizers.config import arguments, is_part, mapping
from amp_rewrite.training.optimizers.gradient import Gradient
from amp_rewrite.training.optimizers.learning_rate import Rate
from amp_rewrite.training.optimizers.optimizer import Optimizer
from amp_rewrite.training.optimizers.slots import Variable
from amp_rewrite.training.optimizers.train_op import SHARED, TrainOp, merged
from amp_rewrite.training.optimizers.wrapper import OptimizerWrapper

_REST = "default"
"""The name of the member that trains what no group has."""


@dataclass(frozen=True, kw_only=True)
class ParameterGroup:
    """How some variables are trained otherwise than the rest.

    Attributes:
        variables: Which ones: patterns of names, words, a regular expression, a function of a
            variable, or a list; see `selected`. A pattern that matches nothing is an error.
        name: What the group is called; by default group_1, group_2, ...
        learning_rate: A learning rate of its own: a number or a schedule.
        rate_multiplier: What the optimizer's learning rate is multiplied by, schedule included.
        weight_decay: A weight decay of its own.
        clipnorm: See `Settings`; so for the next two. A norm is that of the group alone.
        clipvalue: See `Settings`.
        global_clipnorm: See `Settings`.
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
    """An optimizer that trains groups of variables in ways of their own, as PyTorch's groups do.

        optimizer = ParameterGroups(
            AdamW(LinearWarmUp(1e-4, 500), weight_decay=0.01),
            [
                ParameterGroup(variables="encoder.*", rate_multiplier=0.1),
                ParameterGroup(variables="head.*", learning_rate=0.01),
            ],
            no_decay="bias,norm",
        )

    All groups share one backward pass, and one loss scale if a LossScaleOptimizer is put around.
    What no group has is trained by the optimizer itself, whose members these are otherwise. A
    learning rate of a group's own is the state `learning_rate/<name>`, and
    `members[name].learning_rate` sets it.

    Attributes:
        members: Name of a group -> its optimizer; "default" is that of the rest.
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
            optimizer: What trains the rest, and what groups vary. LossScaleOptimizer and
                CrossShardOptimizer go around the groups.
            groups: Groups, or dictionaries of their settings. No variable may be in two.
            no_decay: Variables whose weights do not decay, whichever group they are in: usually
                "bias,norm".

        Raises:
            OptimizerTypeError: An argument is of a type that it cannot be.
            OptimizerValueError: A group is impossible, two have one name, or there is no weight
                decay that `no_decay` could turn off.
        """
        super().__init__(_check_plain(optimizer))
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
        if _chooses(no_decay) and all(
            self._exempt[name] is self.members[name] for name in self.members
        ):
            raise OptimizerValueError(
                "no weight decay that variables could be spared",
                where="no_decay",
                found=type(optimizer).__name__,
                remedy="use an optimizer with weight_decay above 0, such as AdamW",
            )

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a member, as `OptimizerWrapper` does; refuse what groups have copies of."""
        if not name.startswith("_") and is_part(self.inner_optimizer, name):
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
            OptimizerValueError: A variable is in two groups; and what the members raise.
        """
        _, pairs = check_pairs(grads_and_vars)
        steps = [
            member.apply_gradients(part, global_step, name)
            for member, part in self._parts(pairs)
            if any(gradient is not None for gradient, _ in part)
        ]
        return merged(steps, (*SHARED, "non_slot"))

    def _parts(self, pairs: Pairs) -> list[tuple[Optimizer, Pairs]]:
        """Return the members and what each trains, the rest first."""
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
        """Return what `from_config` makes groups like these from.

        JSON can hold it if variables are chosen by texts and lists of texts.
        """
        groups = [_settings(group) for group in self._groups]
        for group in groups:
            if isinstance(group.get("learning_rate"), schedules.Schedule):
                group["learning_rate"] = group["learning_rate"].get_config()
        return {**super().get_config(), "groups": groups, "no_decay": self._no_decay}

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """Return groups made from what `get_config` returned; see `OptimizerWrapper`."""
        settings = arguments(cls, config, OptimizerTypeError)
        groups = [
            mapping(group, "groups", OptimizerTypeError) for group in settings.get("groups", ())
        ]
        for group in groups:
            schedules.restore_rate(group, custom_objects)
        settings["groups"] = groups
        return super().from_config(settings, custom_objects)


def _check_plain(optimizer: object) -> Optimizer:
    """Return an optimizer that groups can vary: none that wraps another one."""
    where = "ParameterGroups"
    if not isinstance(optimizer, Optimizer):
        raise OptimizerTypeError(
            "not an optimizer", where=where, found=f"an object of type {type(optimizer).__name__}"
        )
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
    return optimizer


def _chooses(selection: object) -> bool:
    """Tell whether a selection can choose anything: it is neither None nor empty."""
    if isinstance(selection, Collection):
        return len(cast("Collection[object]", selection)) > 0
    return selection is not None


def _group(entry: object) -> ParameterGroup:
    """Return a group, of a group or of its settings."""
    if isinstance(entry, ParameterGroup):
        return entry
    names = [f.name for f in fields(ParameterGroup)]
    settings: Mapping[Any, Any] = (
        cast("Mapping[Any, Any]", entry) if isinstance(entry, Mapping) else {}
    )
    unknown = [key for key in settings if key not in names]
    if "variables" not in settings or unknown:
        raise OptimizerTypeError(
            "not a group of variables",
            found=repr(unknown[0]) if unknown else f"an object of type {type(entry).__name__}",
            expected=f"a ParameterGroup, or a dictionary of {', '.join(names)}",
        )
    return ParameterGroup(**settings)


def _without_decay(member: Optimizer) -> Optimizer:
    """Return a member whose weights do not decay; itself if they do not anyway."""
    return member.member(weight_decay=0.0) if getattr(member.rule, "weight_decay", 0) else member


def _settings(group: ParameterGroup) -> dict[str, Any]:
    """Return the settings of a group that are not None."""
    settings = {f.name: getattr(group, f.name) for f in fields(group)}
    return {key: value for key, value in settings.items() if value is not None}
