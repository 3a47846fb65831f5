"""Checks of what a training session is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from amp_rewrite.base.arguments import whole_number
from amp_rewrite.errors import FetchError, OptionError
from amp_rewrite.training.step.step_info import (
    DEFAULT_FETCHES,
    IGNORED,
    LABELS,
    LOGITS,
    PREDICTIONS,
    StepInfo,
)

_NAMED = (LOGITS, PREDICTIONS, LABELS)


def seed_number(given: object) -> int:
    """Return a seed as an int."""
    seed = whole_number(given)
    if seed is None:
        raise OptionError(
            "the seed must be an integer", found=repr(given), remedy="pass a number such as 0"
        )
    return seed


def example_count(given: object) -> int:
    """Return a number of examples as an int."""
    count = whole_number(given)
    if count is None or count < 0:
        raise OptionError("impossible number of examples", found=repr(given))
    return count


def fetched_names(fetches: str | Iterable[str]) -> tuple[str, ...]:
    """Return the names of what is to be fetched, each once."""
    if isinstance(fetches, str):
        return (fetches,)
    names: list[object] = list(fetches) if isinstance(fetches, Iterable) else [fetches]  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
    for name in names:
        if not isinstance(name, str):
            raise FetchError(
                "fetches must be names",
                found=f"an object of type {type(name).__name__}",
                remedy="pass the name of a value, or a list of names",
            )
    return tuple(dict.fromkeys(map(str, names)))


def fetch_names(
    info: StepInfo, fetches: str | Iterable[str] | None, *, updates: bool
) -> tuple[str, ...]:
    """Return the names of what a session is to fetch, each once.

    None is what is fetched without being asked for; without `updates` only the forward pass runs.

    Raises:
        FetchError: They are no names, or there are none and no state to update either.
    """
    if fetches is None:
        wanted = DEFAULT_FETCHES if updates else DEFAULT_FETCHES[:1]
        names = tuple(name for name in wanted if name in info.fetches)
    else:
        names = fetched_names(fetches)
    if not names and not updates:
        raise FetchError(
            "nothing is asked for", found=repr(fetches), remedy="pass the name of a value"
        )
    return names


def checked_targets(targets: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what a user says that evaluation compares; empty if nothing is said."""
    if targets is None:
        return {}
    is_mapping = isinstance(targets, Mapping)  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
    if not is_mapping or not all(_is_target(key, target) for key, target in targets.items()):
        raise OptionError(
            "targets must be a mapping to names of values",
            found=repr(targets),
            expected=f"the keys {', '.join(map(repr, _NAMED))}, and {IGNORED!r} with a number",
            remedy="pass {'logits': name, 'labels': name}",
        )
    return {key: int(target) if key == IGNORED else target for key, target in targets.items()}


def _is_target(key: object, target: object) -> bool:
    if key == IGNORED:
        return whole_number(target) is not None
    return key in _NAMED and isinstance(target, str)
