"""Arguments of losses and optimizers as words: KEY=VALUE."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from amp_rewrite.errors import OptionError


def argument(
    text: str, name: str, defaults: Mapping[str, Any], rare: Collection[str] = ()
) -> tuple[str, Any]:
    """Return the name and the value of an argument.

    Args:
        text: KEY=VALUE; dashes of the key stand for underscores, the value is JSON or a word.
        name: What takes it.
        defaults: The arguments that it takes -> their defaults.
        rare: Those that an error does not name.

    Raises:
        OptionError: There is no such argument, or the value cannot be read.
    """
    key, equals, value = text.partition("=")
    key = key.strip().replace("-", "_")
    if not equals or key not in defaults:
        names = ", ".join(key for key in defaults if key not in rare)
        raise OptionError(
            f"{name} takes no such option", found=text, expected=f"KEY=VALUE, {names}"
        )
    present = defaults[key]
    if isinstance(present, str):
        return key, value
    for spelling in (value, value.lower()):
        try:
            return key, json.loads(spelling)
        except ValueError:
            continue
    if isinstance(present, tuple):
        return key, (value,)
    raise OptionError(
        f"the option {key!r} has no value that can be read",
        found=value,
        expected="a number, true or false",
    )
