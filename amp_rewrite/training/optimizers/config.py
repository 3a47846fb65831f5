"""Configurations as Keras has them, and the settings that are attributes of optimizers."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from amp_rewrite.base.hints import no_attribute
from amp_rewrite.base.name_patterns import did_you_mean
from amp_rewrite.errors import AmpError, OptimizerTypeError, OptimizerValueError
from amp_rewrite.training.optimizers import argument_checks as check
from amp_rewrite.training.optimizers.update_rule import UpdateRule


def arguments(kind: type[Any], config: Any, error: type[AmpError]) -> dict[str, Any]:
    """Return a copy of a configuration; raise `error` if it does not fit a class's arguments."""
    settings, signature = mapping(config, kind.__name__, error), inspect.signature(kind)
    try:
        signature.bind(**settings)
    except TypeError as misfit:
        raise error(
            f"the configuration does not fit: {misfit}",
            where=kind.__name__,
            expected=", ".join(signature.parameters) or "no key",
            remedy="pass what get_config returned",
        ) from misfit
    return settings


def mapping(config: Any, where: str, error: type[AmpError]) -> dict[Any, Any]:
    """Return a copy of a configuration."""
    if not isinstance(config, Mapping):
        raise error(
            "a configuration must be a mapping",
            where=where,
            found=f"an object of type {type(config).__name__}",
            remedy="pass what get_config returned",
        )
    return dict(config)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def custom_classes(custom_objects: Any, error: type[AmpError]) -> Mapping[str, type[Any]]:
    """Return a user's classes by name; None is no class."""
    custom = {} if custom_objects is None else custom_objects
    kinds = custom.values() if isinstance(custom, Mapping) else [custom]
    wrong = [kind for kind in kinds if not callable(getattr(kind, "from_config", None))]
    if wrong or not isinstance(custom, Mapping):
        raise error(
            "custom_objects must be a mapping from names to classes with from_config",
            found=f"{wrong[0] if wrong else custom!r:.60}",
        )
    return custom


def class_of(given: Any, classes: Mapping[str, type[Any]]) -> Any:
    """Return the class among `classes` that `{"class_name": name, ...}` names, or None."""
    name = given.get("class_name") if isinstance(given, Mapping) else None
    return classes.get(name) if isinstance(name, str) else None


def restore(kind: type[Any], config: Any, custom_objects: Mapping[str, type[Any]]) -> Any:
    """Return `kind.from_config(config)`, which gets `custom_objects` if it has this argument."""
    if "custom_objects" in inspect.signature(kind.from_config).parameters:
        return kind.from_config(config, custom_objects=custom_objects)
    return kind.from_config(config)


NAMES = {"beta_1": "beta1", "beta_2": "beta2", "rho": "decay", "nesterov": "use_nesterov"}
"""Keras's name of a hyperparameter -> the name here; `rho` of Adadelta is the same in both."""

ELSEWHERE = {
    "lr": "learning_rate",
    "eps": "epsilon",
    "betas": "beta1 and beta2",
    "max_grad_norm": "global_clipnorm",
}
"""PyTorch's name of an argument -> the name here."""

_INSTEAD = {
    "amsgrad": "only Adam and AdamW have AMSGrad in Keras, and LAMB here: leave amsgrad out",
    "exclude_from_weight_decay": 'use ParameterGroups(optimizer, no_decay="bias,norm")',
    "loss_scale_factor": "write LossScaleOptimizer(optimizer, FixedLossScale(factor))",
    "ema_overwrite_frequency": "evaluate and export take averaged=True, so that the averages need "
    "not overwrite the variables",
    "weight_decay": "use AdamW, whose weight decay is decoupled as Keras's is",
}
"""An argument that is accepted only if it is off -> its replacement."""

_WITHOUT_EFFECT = ("jit_compile", "is_legacy_optimizer")
"""Arguments of Keras 2 that change no number."""


@dataclass(frozen=True)
class Settings(check.Checked):
    """The arguments of every optimizer besides its learning rate and hyperparameters.

    Attributes:
        clipnorm: The largest norm of each gradient. At most one of these three limits is set.
        clipvalue: The largest magnitude of an element of a gradient.
        global_clipnorm: The largest global norm of all gradients.
        use_ema: Keep an average of each variable: the variable after the first step, then
            ema_momentum * average + (1 - ema_momentum) * variable.
        ema_momentum: The decay of the average, in [0, 1).
        gradient_accumulation_steps: The number of batches of one update of `minimize`; None is 1.
    """

    clipnorm: float | None = check.field(check.number, default=None, above=True)
    clipvalue: float | None = check.field(check.number, default=None, above=True)
    global_clipnorm: float | None = check.field(check.number, default=None, above=True)
    use_ema: bool = check.field(check.flag, default=False)
    ema_momentum: float = check.field(check.number, default=0.99, high=1)
    gradient_accumulation_steps: int | None = check.field(check.whole, default=None, low=1)

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        given = [name for name in LIMITS if getattr(self, name) is not None]
        if len(given) > 1:
            raise OptimizerValueError("an optimizer clips in one way", found=" and ".join(given))

    def changed(self) -> dict[str, Any]:
        """Return the settings of Keras that differ from their defaults."""
        values = {entry: getattr(self, entry.name) for entry in fields(self)[len(LIMITS) :]}
        return {entry.name: value for entry, value in values.items() if value != entry.default}


LIMITS = tuple(entry.name for entry in fields(Settings)[:3])
"""The arguments by which an optimizer clips."""
KERAS = tuple(entry.name for entry in fields(Settings)[3:])
"""The settings of Keras's optimizers."""


def supported(optimizer: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return keyword arguments without those that are off or change no number; refuse others."""
    for name, remedy in _INSTEAD.items():
        setting = options.get(name)
        is_off = isinstance(setting, bool | int | float | list | tuple) and not setting
        if setting is not None and not is_off:
            raise OptimizerValueError(
                f"{name} is not an argument here",
                where=optimizer,
                found=f"{name}={setting!r}",
                remedy=remedy,
            )
    return {k: v for k, v in options.items() if k not in (*_WITHOUT_EFFECT, *_INSTEAD)}


def taken(
    optimizer: str, rule: UpdateRule, options: Mapping[str, Any]
) -> tuple[UpdateRule, Settings]:
    """Return the rule, with arguments in Keras's spelling, and the settings."""
    own, options = [entry.name for entry in fields(rule)], supported(optimizer, options)
    renamed = {NAMES[k]: v for k, v in options.items() if NAMES.get(k) in own}
    rest = {k: v for k, v in options.items() if NAMES.get(k) not in own}
    unknown = sorted(rest.keys() - {*LIMITS, *KERAS})
    if unknown:
        meant = [f"{key} is called {ELSEWHERE[key]} here" for key in unknown if key in ELSEWHERE]
        raise OptimizerTypeError(
            "unknown argument",
            where=optimizer,
            found=unknown,
            expected=[*own, *LIMITS],
            remedy="; ".join(meant) or did_you_mean(unknown[0], ["learning_rate", *own, *KERAS]),
        )
    given = {k: v for k, v in rest.items() if v is not None}
    return replace(rule, **renamed) if renamed else rule, Settings(**given)


def flat(config: Any) -> Any:
    """Return a configuration without the wrapper that Keras 3 puts around the arguments."""
    if isinstance(config, Mapping) and isinstance(config.get("config"), Mapping):
        return config["config"]
    return config


_PARTS: dict[str, type] = {"rule": UpdateRule, "settings": Settings}
"""The attributes of an optimizer that are built into steps -> their classes."""


class HasParts:
    """An optimizer's attributes: the fields of its rule and of its settings are among them."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; refuse a part of a built step, and a misspelled hyperparameter."""
        name = self._ours(name)
        own = {} if hasattr(type(self), name) else parts(self)
        meant = None if name in own else _meant(name, own)
        if meant is not None:
            raise OptimizerValueError(
                f"{type(self).__name__} has no hyperparameter of this name",
                where=name,
                expected=repr(meant),
            )
        states = vars(self).get("_states")
        if states is not None and states.built and name in own:
            raise OptimizerValueError(
                f"{name} is part of the step, which has been built",
                where=self.name,
                remedy="set it before gradients are applied, or make another optimizer; only the "
                "learning rate can change between steps",
            )
        if own.get(name, name) != name:
            name, value = own[name], replace(vars(self)[own[name]], **{name: value})
        if name in _PARTS and not isinstance(value, _PARTS[name]):
            raise OptimizerTypeError(
                f"{name} must be of another class",
                found=repr(value),
                expected=_PARTS[name].__name__,
            )
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        """Return a hyperparameter or a setting, by its name here or in Keras."""
        ours = self._ours(name)
        part = parts(self).get(ours)
        if part is not None:
            return getattr(vars(self)[part], ours)
        raise no_attribute(self, name)

    def __dir__(self) -> list[str]:
        """Return the names of all attributes, hyperparameters and settings among them."""
        return sorted({*super().__dir__(), *parts(self)})

    def _ours(self, name: str) -> str:
        """Return the hyperparameter that Keras has under a name, or the name."""
        own, ours = parts(self), NAMES.get(name)
        return name if ours is None or name in own or ours not in own else ours


def _meant(name: str, own: Mapping[str, str]) -> str | None:
    """Return the hyperparameter that a name is similar to, or None."""
    similar = ELSEWHERE.get(name, name).split()[0].replace("_", "").lower()
    return next((n for n in own if n.replace("_", "") == similar), None)


def parts(optimizer: object) -> dict[str, str]:
    """Return hyperparameter or setting -> the attribute that holds it, and these attributes."""
    own = vars(optimizer)
    held = {entry.name: part for part in _PARTS if part in own for entry in fields(own[part])}
    return {part: part for part in _PARTS} | held
