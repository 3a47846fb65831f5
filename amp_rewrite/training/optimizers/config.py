"""Configurations: what `get_config` returns, and `from_config` makes an object from."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from typing import Any

from amp_rewrite.errors import AmpError

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

    Raises:
        AmpError: `error`: it is not a mapping, or a key is missing or unknown.
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
    """Return a copy of a configuration.

    Raises:
        AmpError: `error`: it is not a mapping.
    """
    if not isinstance(config, Mapping):
        raise error(
            "a configuration must be a mapping",
            where=where,
            found=f"an object of type {type(config).__name__}",
            remedy="pass what get_config returned",
        )
    return dict(config)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def custom_classes(custom_objects: Any, error: type[AmpError]) -> Mapping[str, type[Any]]:
    """Return the classes that a user restores configurations with, by name; None is none.

    Raises:
        AmpError: `error`: it is not a mapping to classes with `from_config`.
    """
    if custom_objects is None:
        return {}
    wrong_part = f"an object of type {type(custom_objects).__name__}"
    if isinstance(custom_objects, Mapping):
        wrong = [f"{v!r} for {k!r}" for k, v in custom_objects.items() if not _restores(v)]
        if not wrong:
            return custom_objects
        wrong_part = wrong[0]
    raise error(
        "custom_objects must be a mapping from names to classes",
        found=wrong_part,
        expected="classes with from_config",
    )


def _restores(kind: Any) -> bool:
    return callable(getattr(kind, "from_config", None))


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
