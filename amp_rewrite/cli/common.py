"""What the commands share: consoles, exit statuses and the options of a rewrite."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from amp_rewrite import targets

DONE, FAILED, WRONG_USAGE, NOT_STRICT = 0, 1, 2, 3
"""Exit statuses: done; an AmpError or "did not hold"; wrong usage; --strict was not met."""

INTERRUPTED = 130
"""The exit status after Ctrl-C, as shells have it: 128 + SIGINT."""


def console(*, quiet: bool = False) -> Console:
    """Return the console for results; it prints nothing if `quiet`."""
    return Console(quiet=quiet, soft_wrap=True, highlight=False, emoji=False)


def error_console() -> Console:
    """Return the console for errors, warnings and progress."""
    return Console(stderr=True, soft_wrap=True, highlight=False, emoji=False)


Precision = Annotated[str, typer.Option(help="float16 or bfloat16.")]
Target = Annotated[str, typer.Option(help=targets.in_words())]
ListFiles = Annotated[
    list[str] | None,
    typer.Option("--lists", help="Op list file or built-in name; repeat to lay one over another."),
]
Level = Annotated[
    str,
    typer.Option(
        help="default, TENSOR_CORES_ONLY, TREAT_INFER_AS_DENY or UNSAFE_FORCE_ALL (any case)."
    ),
]
KeepIoTypes = Annotated[
    bool,
    typer.Option("--keep-io-types/--no-keep-io-types", help="Keep graph input and output types."),
]
KeepIo = Annotated[
    list[str] | None,
    typer.Option("--keep-io", help="Keep only the types of these inputs and outputs; repeat."),
]
Preserve = Annotated[
    list[str] | None, typer.Option("--preserve", help="Name of a node not to touch; repeat.")
]
DenyNode = Annotated[
    list[str] | None,
    typer.Option("--deny-node", help="Regex for whole node names to keep float32; repeat."),
]
AllowNode = Annotated[
    list[str] | None,
    typer.Option("--allow-node", help="Regex for whole node names to treat as allowed; repeat."),
]
Weights = Annotated[
    str, typer.Option(help="convert: store low-precision weights; cast: keep float32 ones.")
]
InferAfterAllow = Annotated[
    bool,
    typer.Option(
        "--infer-after-allow/--no-infer-after-allow",
        help="Let an infer operator right behind an allow one become low.",
    ),
]
InlineFunctions = Annotated[
    bool,
    typer.Option(
        "--inline-functions/--no-inline-functions",
        help="Inline model-local functions first; otherwise calls are boundaries.",
    ),
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


def rewrite_arguments(given: dict[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of `amp_rewrite.rewrite` from a command's parameters."""
    keep = given["keep_io"] or given["keep_io_types"]
    return {
        "precision": given["precision"],
        "target": given["target"],
        "lists": given["lists"] or None,
        "level": given["level"],
        "keep_io_types": keep,
        "preserve": given["preserve"] or (),
        "deny_nodes": given["deny_node"] or (),
        "allow_nodes": given["allow_node"] or (),
        "weights": given["weights"],
        "infer_after_allow": given["infer_after_allow"],
        "inline_functions": given["inline_functions"],
    }
