"""What the commands share: consoles, exit statuses and the options of a rewrite."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from amp_rewrite.report.plain_console import PlainConsole

DONE, FAILED, WRONG_USAGE, NOT_STRICT = 0, 1, 2, 3
"""Exit statuses: done; an AmpError or "did not hold"; wrong usage; --strict was not met."""

INTERRUPTED = 130
"""The exit status after Ctrl-C, as shells have it: 128 + SIGINT."""


def console(*, quiet: bool = False) -> PlainConsole:
    """Return the console for results; it prints nothing if `quiet`."""
    from amp_rewrite.report.plain_console import (
        PlainConsole,
    )  # rich takes longer than to show a help

    return PlainConsole(quiet=quiet)


def error_console() -> PlainConsole:
    """Return the console for errors, warnings and progress."""
    from amp_rewrite.report.plain_console import PlainConsole

    return PlainConsole(stderr=True)


Data = Annotated[
    list[Path], typer.Option(help="An .npz file (one batch), or a folder of them; repeat.")
]
ListFile = Annotated[
    Path, typer.Option("--output", "-o", help="Where to write the op list, for convert --lists.")
]
ReportFile = Annotated[Path | None, typer.Option("--report", help="Write the JSON report here.")]
Conditional = Annotated[
    str,
    typer.Option(
        help="How a step is skipped: if, or select, which holds no control flow (CUDA graphs)."
    ),
]
MaxSkips = Annotated[
    int,
    typer.Option(
        min=0, help="Give up after so many skipped steps in a row at loss scale 1; 0: never."
    ),
]


def loss_scale_text(config: Mapping[str, Any]) -> str:
    """Return a loss scale in words, given its configuration as a step holds it."""
    found: Mapping[str, Any] = config["config"]
    if "loss_scale_value" in found:
        return f"{found['loss_scale_value']:g}, fixed"
    return (
        f"dynamic from {found['initial_loss_scale']:g}, times {found['multiplier']:g} after "
        f"{found['increment_period']} good steps"
    )
