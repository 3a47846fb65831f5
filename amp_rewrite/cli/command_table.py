"""The commands by name: the file of one is imported when it is called, or asked for its help."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from amp_rewrite.cli.help_examples import EXAMPLES, epilog
from amp_rewrite.cli.help_groups import SETTINGS, GroupedCommand
from amp_rewrite.cli.other_names import with_other_names

COMMANDS: Mapping[str, str] = {
    "convert": "Convert MODEL to mixed precision.",
    "check": "Check whether a 16-bit model is numerically safe.",
    "repair": "Repair a 16-bit model: raise to float32 only what is unsafe.",
    "explain": "Explain why each NODE of MODEL becomes 16-bit or stays float32.",
    "inputs": "Generate plausible inputs for MODEL, for --data; edit them as you like.",
    "verify": "Emulate REWRITTEN in its 16-bit type and compare it with ORIGINAL.",
    "calibrate": (
        "Run MODEL in float32 on data and list the nodes whose values overflow the 16-bit type."
    ),
    "localise": "Find the node where the error starts, and the node that matters most.",
    "tune": "Find the smallest set of nodes to keep float32, so that MODEL passes.",
    "check-lists": (
        "Check op lists against ONNX schemas and kernel tables, and models against op lists."
    ),
    "run": "Run MODEL on an execution provider; print the time and which nodes ran there.",
    "train-step": "Build a training step for FORWARD: an ONNX model that any runtime can run.",
    "train": "Train STEP on data, with checkpoints, metrics and evaluation.",
    "doctor": "Train STEP until a value is not finite; name its source, and values that underflow.",
    "inject": "Add loss scaling to a training graph: scaled gradients, conditional updates.",
    "demo": "Build a small image classifier, convert it, and compare it with float32.",
}
"""Name -> the first line of the command's docstring, which the list of commands shows.

The command `train-step` is the function `train_step` of the file `train_step.py`.
"""


def command(name: str) -> Any:
    """Import a command and return it."""
    function = name.replace("-", "_")
    module = import_module(f"{__package__}.{function}")
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings={**SETTINGS})
    alone.command(name, cls=GroupedCommand, epilog=epilog(EXAMPLES[name]))(
        getattr(module, function)
    )
    return with_other_names(typer.main.get_command(alone))


class Commands(TyperGroup):
    """The group of commands, of which it knows names and first lines until one is called."""

    def __init__(self, **settings: Any) -> None:
        """Take what typer makes of the application; the commands are those of the table."""
        settings["commands"] = {n: TyperCommand(n, help=line) for n, line in COMMANDS.items()}
        super().__init__(**settings)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name of the command that is called, the command, and its arguments."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else command(name), rest
