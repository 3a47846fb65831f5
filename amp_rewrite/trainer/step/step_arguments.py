"""Checks of what a training session is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from amp_rewrite.arguments import whole_number
from amp_rewrite.errors import FetchError, OptionError
from amp_rewrite.trainer.step.step_info import DEFAULT_FETCHES, StepInfo

_TARGETS = ("logits", "labels")


def seed_number(given: object) -> int:
    """Return a seed as an int.

    Raises:
        OptionError: It is no integer.
    """
    seed = whole_number(given)
    if seed is None:
        raise OptionError(
            "the seed must be an integer", found=repr(given), remedy="pass a number such as 0"
        )
    return seed


def example_count(given: object) -> int:
    """Return a number of examples as an int.

    Raises:
        OptionError: It is no integer of at least 0.
    """
    count = whole_number(given)
    if count is None or count < 0:
        raise OptionError("impossible number of examples", found=repr(given))
    return count


def fetched_names(fetches: str | Iterable[str]) -> tuple[str, ...]:
    """Return the names of what is to be fetched, each once.

    Raises:
        FetchError: They are no names.
    """
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

    Args:
        info: The description of the step.
        fetches: A name, names, or None for what is fetched without being asked for.
        updates: Whether a step is run; otherwise the forward pass only.

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


def target_names(targets: Mapping[str, str] | None) -> dict[str, str] | None:
    """Return the names of logits and labels, or None if none are given.

    Raises:
        OptionError: They are no mapping from "logits" and "labels" to names.
    """
    if targets is None:
        return None
    named = isinstance(targets, Mapping) and all(  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        key in _TARGETS and isinstance(name, str)  # pyright: ignore[reportUnnecessaryIsInstance]
        for key, name in targets.items()
    )
    if not named:
        raise OptionError(
            "targets must be a mapping to names of values",
            found=repr(targets),
            expected=f"the keys {' and '.join(map(repr, _TARGETS))}",
            remedy="pass {'logits': name, 'labels': name}",
        )
    return dict(targets) or None
