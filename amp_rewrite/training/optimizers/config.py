"""Configurations, what Keras calls arguments, and the settings that are attributes of optimizers.

Arguments that are unknown or of a wrong type are an OptimizerTypeError, or what is passed as
`error`; impossible ones an OptimizerValueError.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from amp_rewrite.errors import AmpError, OptimizerTypeError, OptimizerValueError
from amp_rewrite.training.optimizers import argument_checks as check
from amp_rewrite.training.optimizers.update_rule import UpdateRule

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def arguments(
    kind: type[Any], config: Any, error: type[AmpError], needed: Collection[str] = ()
) -> dict[str, Any]:
    """Return a configuration as arguments of a class.

    Args:
        kind: The class; a constructor that takes any keyword checks them itself.
        config: What a user passed; not changed.
        error: What to raise.
        needed: Keys that must be there besides the arguments without a default.
    """
    settings = mapping(config, kind.__name__, error)
    parameters = inspect.signature(kind).parameters.values()
    named = {p.name: p.default for p in parameters if p.kind in _NAMED}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    for key in settings:
        if not isinstance(key, str) or not (takes_any or key in named):
            raise error(
                f"the configuration has an unknown key {key!r}",
                where=kind.__name__,
                expected=", ".join(named) or "no key",
                remedy="pass what get_config returned",
            )
    required = {name for name, default in named.items() if default is inspect.Parameter.empty}
    missing = [name for name in named if name not in settings and name in required.union(needed)]
    if missing:
        raise error(
            f"the configuration has no key {missing[0]!r}",
            where=kind.__name__,
            found=", ".join(settings) or "no key",
            remedy="pass what get_config returned",
        )
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
    """Return the classes that a user restores configurations with, by name; None is none."""
    if custom_objects is None:
        return {}
    wrong = [f"an object of type {type(custom_objects).__name__}"]
    if isinstance(custom_objects, Mapping):
        kinds = {k: getattr(kind, "from_config", None) for k, kind in custom_objects.items()}
        wrong = [f"{custom_objects[k]!r} for {k!r}" for k, f in kinds.items() if not callable(f)]
    if not wrong:
        return custom_objects
    raise error(
        "custom_objects must be a mapping from names to classes",
        found=wrong[0],
        expected="classes with from_config",
    )


def class_of(given: Any, classes: Mapping[str, type[Any]]) -> Any:
    """Return the class among `classes` that `{"class_name": name, ...}` names, or None."""
    name = given.get("class_name") if isinstance(given, Mapping) else None
    return classes.get(name) if isinstance(name, str) else None


def restore(kind: type[Any], config: Any, custom_objects: Mapping[str, type[Any]]) -> Any:
    """Return `kind.from_config(config)`.

    A `from_config` that has an argument `custom_objects` gets them, for the parts of what it makes.
    """
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
"""What PyTorch calls an argument -> its name here."""

_INSTEAD = {
    "amsgrad": "only Adam and AdamW have AMSGrad, as in Keras: leave amsgrad out",
    "loss_scale_factor": "write LossScaleOptimizer(optimizer, FixedLossScale(factor))",
    "ema_overwrite_frequency": "evaluate and export take averaged=True, so that the averages need "
    "not overwrite the variables",
    "weight_decay": "use AdamW, whose weight decay is decoupled as Keras's is",
}
"""An argument of Keras's that is taken if it is off -> what to write otherwise."""

_WITHOUT_EFFECT = ("jit_compile", "is_legacy_optimizer")
"""What configurations of Keras 2 have, which says nothing about numbers."""


@dataclass(frozen=True)
class Settings(check.Checked):
    """What every optimizer takes besides its learning rate and hyperparameters.

    Attributes:
        clipnorm: The largest norm of each gradient. An optimizer has at most one of these three; it
            clips gradients before it applies them.
        clipvalue: The largest magnitude of an element of a gradient.
        global_clipnorm: The largest global norm of all gradients.
        use_ema: Keep an average of each variable as `WeightAverage` does: after the first step it
            is the variable, then ema_momentum * average + (1 - ema_momentum) * variable.
        ema_momentum: What is kept of the average; at least 0, below 1.
        gradient_accumulation_steps: How many batches make one update of `minimize`; None is 1.
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
        """Return the settings of Keras that are not its defaults, as arguments."""
        values = {entry: getattr(self, entry.name) for entry in fields(self)[len(LIMITS) :]}
        return {entry.name: value for entry, value in values.items() if value != entry.default}


LIMITS = tuple(entry.name for entry in fields(Settings)[:3])
"""The arguments by which an optimizer clips."""
KERAS = tuple(entry.name for entry in fields(Settings)[3:])
"""Settings that only Keras's optimizers have."""


def supported(optimizer: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return keyword arguments without those of Keras's that are off, or say nothing of numbers.

    Args:
        optimizer: The name that errors show.
        options: Keyword arguments.
    """
    for name, remedy in _INSTEAD.items():
        setting = options.get(name)
        if setting is not None and not (isinstance(setting, bool | int | float) and not setting):
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
    """Return the rule and the settings that keyword arguments describe.

    Args:
        optimizer: The name that errors show.
        rule: The rule of the arguments in our spelling.
        options: Settings, and hyperparameters of the rule in Keras's spelling.
    """
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
            remedy="; ".join(meant) or None,
        )
    given = {k: v for k, v in rest.items() if v is not None}
    return replace(rule, **renamed) if renamed else rule, Settings(**given)


def flat(config: Any) -> Any:
    """Return a configuration without what Keras 3 says of the class beside its arguments."""
    if isinstance(config, Mapping) and isinstance(config.get("config"), Mapping):
        return config["config"]
    return config


_PARTS: dict[str, type] = {"rule": UpdateRule, "settings": Settings}
"""The attributes of an optimizer that are built into steps -> their classes."""


class HasParts:
    """An optimizer's attributes: the fields of its rule and of its settings are among them."""

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


def parts(optimizer: object) -> dict[str, str]:
    """Return hyperparameter or setting -> the attribute of an optimizer that has it.

    A wrapper has none of its own.
    """
    own = vars(optimizer)
    return {entry.name: part for part in _PARTS if part in own for entry in fields(own[part])}


def is_part(optimizer: object, name: str) -> bool:
    """Return whether an attribute of an optimizer is built into steps."""
    return name in _PARTS or name in parts(optimizer)
