"""Arguments of losses and optimizers as words: KEY=VALUE."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from amp_rewrite.errors import OptionError


def argument(
    text: str, name: str, known: Mapping[str, Any], rare: Collection[str] = ()
) -> tuple[str, Any]:
    """Return the name and the value of an argument.

    Args:
        text: KEY=VALUE; dashes of the key stand for underscores, the value is JSON or a word.
        name: What takes it.
        known: The arguments that it takes -> their defaults.
        rare: Those that an error does not name.

    Raises:
        OptionError: There is no such argument, or the value cannot be read.
    """
    key, equals, given = text.partition("=")
    key = key.strip().replace("-", "_")
    if not equals or key not in known:
        names = ", ".join(key for key in known if key not in rare)
        raise OptionError(
            f"{name} takes no such option", found=text, expected=f"KEY=VALUE, {names}"
        )
    present = known[key]
    if isinstance(present, str):
        return key, given
    for spelling in (given, given.lower()):
        try:
            return key, json.loads(spelling)
        except ValueError:
            continue
    if isinstance(present, tuple):
        return key, (given,)
    raise OptionError(
        f"the option {key!r} has no value that can be read",
        found=given,
        expected="a number, true or false",
    )
