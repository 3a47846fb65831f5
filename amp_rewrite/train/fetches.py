"""What callers ask a session for."""

from __future__ import annotations

from collections.abc import Iterable

from amp_rewrite.train.errors import FetchError


def distinct(fetches: Iterable[str]) -> tuple[str, ...]:
    """Return names in order, each once.

    Raises:
        FetchError: One is no name.
    """
    names: list[object] = list(fetches) if isinstance(fetches, Iterable) else [fetches]  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
    for name in names:
        if not isinstance(name, str):
            raise FetchError(
                "fetches must be names",
                found=f"an object of type {type(name).__name__}",
                remedy="pass the name of a value, or a list of names",
            )
    return tuple(dict.fromkeys(map(str, names)))
