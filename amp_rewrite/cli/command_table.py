"""The commands by name: the file of one is imported when it is called, or asked for its help."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from amp_rewrite.cli.help_examples import EXAMPLES, epilog
from amp_rewrite.cli.other_names import with_other_names
from amp_rewrite.cli.streams import with_streams

COMMANDS: Mapping[str, str] = {
    "convert": "Rewrite MODEL to mixed precision.",
    "check": "Tell whether MODEL, in 16 bits, is safe in the types that it has.",
    "repair": "Raise to float32 what is dangerous in MODEL, which is in 16 bits, and no more.",
    "explain": "Print why each NODE of MODEL becomes low precision or stays float32.",
    "report": "Write a page that shows in a browser what a rewrite of MODEL does, and why.",
    "inputs": (
        "Make up inputs for MODEL, by what each of them is, for --data; change them as you like."
    ),
    "verify": (
        "Emulate REWRITTEN in its low precision and compare it with ORIGINAL; exit 1 if it differs."
    ),
    "calibrate": (
        "Run MODEL in float32 over data and find the nodes that do not fit the low type's range."
    ),
    "localise": (
        "Name the node of REWRITTEN that departs first from ORIGINAL, and the one that matters "
        "most."
    ),
    "tune": (
        "Find the smallest set of nodes of MODEL to keep float32; OUTPUT always holds the best so "
        "far."
    ),
    "check-lists": (
        "Check op lists against schemas and kernel tables, and models against the lists."
    ),
    "kernels": "Write the kernels that PROVIDER of ONNX Runtime has as a table, for --target.",
    "measure-costs": "Measure what operators and casts take on a provider, for --costs.",
    "run": ("Run MODEL on an execution provider; say how long it takes and which nodes it took."),
    "train-step": (
        "Build a training step for FORWARD: an ordinary ONNX model that any runtime can run."
    ),
    "train": "Train STEP on data, with checkpoints, metrics and evaluation.",
    "doctor": (
        "Train STEP until something is not finite; name the value it begins with, and underflow."
    ),
    "inject": (
        "Scale the seed of a training graph, unscale its gradients, make updates conditional."
    ),
    "demo": "Make a small image classifier, rewrite it, and compare it with float32.",
}
"""Name -> the first line of the command's docstring, which the list of commands shows.

The command `train-step` is the function `train_step` of the file `train_step.py`.
"""


SETTINGS = {"help_option_names": ["-h", "--help"]}
"""What all commands have in common."""


def command(name: str) -> Any:
    """Import a command and return it."""
    function = name.replace("-", "_")
    module = import_module(f"{__package__}.{function}")
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings={**SETTINGS})
    alone.command(name, epilog=epilog(EXAMPLES[name]))(getattr(module, function))
    return with_other_names(with_streams(typer.main.get_command(alone)))


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
