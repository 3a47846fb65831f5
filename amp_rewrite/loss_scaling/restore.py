"""The parts of a LossScaleOptimizer from their configurations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from amp_rewrite.errors import LossScaleTypeError


def restored(given: Any, custom_objects: Any, known: Callable[[object], Any]) -> Any:
    """Return what a configuration denotes.

    Args:
        given: `{"class_name": name, "config": get_config()}`.
        custom_objects: Name -> class of the user's own, or None.
        known: Makes an object of this package's from a configuration.

    Raises:
        LossScaleTypeError: `custom_objects` is no mapping to classes with `from_config`.
        AmpError: What `known` raises.
    """
    kind = _custom(given, {} if custom_objects is None else custom_objects)
    return known(given) if kind is None else kind.from_config(given.get("config", {}))


def _custom(given: Any, custom_objects: Any) -> Any:
    """Return the user's class that a configuration names, or None if it names another one."""
    if not isinstance(custom_objects, Mapping):
        raise _no_classes(f"an object of type {type(custom_objects).__name__}")
    name = given.get("class_name") if isinstance(given, Mapping) else None
    kind: Any = custom_objects.get(name) if isinstance(name, str) else None
    if kind is not None and not hasattr(kind, "from_config"):
        raise _no_classes(f"{kind!r} for {name!r}")
    return kind


def _no_classes(found: str) -> LossScaleTypeError:
    return LossScaleTypeError(
        "custom_objects must be a mapping from names to classes",
        where="LossScaleOptimizer",
        found=found,
        expected="classes with from_config",
    )
