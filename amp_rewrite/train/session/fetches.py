"""What is asked for of a step."""

from __future__ import annotations

from collections.abc import Iterable

from amp_rewrite.errors import FetchError
from amp_rewrite.train.step.arguments import fetched_names
from amp_rewrite.train.step.step_info import DEFAULT_FETCHES, StepInfo


def fetch_names(
    info: StepInfo, fetches: str | Iterable[str] | None, *, updates: bool
) -> tuple[str, ...]:
    """Return the names of what is to be fetched, each once.

    Args:
        info: The description of the step.
        fetches: A name, names, or None for what is fetched without being asked for.
        updates: Whether a step is run; otherwise the forward pass only.

    Raises:
        FetchError: They are no names, or there are none and no state to update either.
    """
    names = _named(info, fetches, updates=updates)
    if not names and not updates:
        raise FetchError(
            "nothing is asked for", found=repr(fetches), remedy="pass the name of a value"
        )
    return names


def _named(
    info: StepInfo, fetches: str | Iterable[str] | None, *, updates: bool
) -> tuple[str, ...]:
    if fetches is None:
        wanted = DEFAULT_FETCHES if updates else DEFAULT_FETCHES[:1]
        return tuple(name for name in wanted if name in info.fetches)
    return fetched_names(fetches)
