"""Which options of `amp-rewrite train` are nothing without others, or beside them."""

from __future__ import annotations

from collections.abc import Collection

import typer

from amp_rewrite.errors import OptionError

_NEEDS = {
    "metric": ("eval",),
    "eval-every": ("eval",),
    "best": ("eval",),
    "patience": ("eval",),
    "restore-best": ("best",),
    "monitor": ("best", "patience"),
    "mode": ("best", "patience"),
    "min-delta": ("patience",),
    "checkpoint-every": ("checkpoint",),
    "averaged": ("eval", "output", "adapters"),
    "no-strict": ("restore",),
}
"""Options -> those of which one has to be there too."""

_SEARCH = "find-learning-rate"
_OF_A_RUN = (
    *("epochs", "output", "adapters", "checkpoint-every", "eval", "eval-every", "metric", "best"),
    *("restore-best", "patience", "min-delta", "mode", "monitor", "averaged", "metrics"),
    *("tensorboard", "page", "learning-rate", "shuffle", "ahead"),
)
"""Options that a search for a learning rate, which trains nothing, has no use for."""


def given_options(context: typer.Context) -> set[str]:
    """Return the names of the options that the command line has."""
    found: set[str] = set()
    for name, value in context.params.items():
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option = name.rstrip("_").replace("_", "-")
            found.add("no-strict" if option == "strict" and not value else option)
    return found


def check_options(given: Collection[str]) -> None:
    """Refuse options that could only be left out.

    Args:
        given: The names of the options that the command line has.

    Raises:
        OptionError: There is one.
    """
    if _SEARCH in given:
        useless = [name for name in _OF_A_RUN if name in given]
        if "checkpoint" in given and "resume" not in given:
            useless.append("checkpoint")
        if useless:
            raise OptionError(
                f"--{_SEARCH} trains nothing and writes nothing",
                found=_listed(useless),
                remedy="leave them out" if useless[1:] else "leave it out",
            )
    for name, needed in _NEEDS.items():
        if name in given and not set(needed) & set(given):
            raise OptionError(
                f"--{name} does nothing without {_listed(needed, ' or ')}",
                remedy=f"add {_listed(needed, ' or ')}, or leave --{name} out",
            )


def _listed(names: Collection[str], between: str = ", ") -> str:
    return between.join(f"--{name}" for name in names)
