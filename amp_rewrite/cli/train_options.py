"""The options of `amp-rewrite train`: what each means, and which are nothing without others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, fields
from inspect import Parameter
from typing import Annotated, Any, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo

from amp_rewrite.cli import common
from amp_rewrite.cli.rewrite_options import with_parameters
from amp_rewrite.errors import OptionError
from amp_rewrite.loop.metrics.get_metric import NAMES
from amp_rewrite.loop.recipe.training_run import RunOptions

OPTIONS: Mapping[str, ArgumentInfo | OptionInfo] = {
    "step": typer.Argument(
        help="The step that amp-rewrite train-step wrote, or a model with training_info."
    ),
    "data": typer.Option(
        help="An .npz file or a folder of .npy files, an array per input, the first axis over "
        "examples; CSV, Parquet or Arrow files, a column per input; a folder of images by class; "
        "- is standard input."
    ),
    "epochs": typer.Option(help="How often every example is seen, in all."),
    "batch": typer.Option(help="Examples in a step, of all shards."),
    "output": typer.Option("--output", "-o", help="Where to write the trained inference model."),
    "adapters": typer.Option(
        help="Write the adapters of train-step --lora alone into this folder, as PEFT does."
    ),
    "checkpoint": typer.Option(help="Save the state here (safetensors) after every epoch."),
    "checkpoint_every": typer.Option(
        help="Save after so many steps too, or after their update; 0 does not."
    ),
    "resume": typer.Option("--resume", help="Go on from the checkpoint, bit for bit."),
    "restore": typer.Option(help="Begin with the states of this checkpoint."),
    "strict": typer.Option(
        "--strict/--no-strict",
        help="--no-strict takes of --restore what fits by name, shape and type, across "
        "freezing, and says what that is not.",
    ),
    "held_out": typer.Option("--eval", help="Held-out data to evaluate after every epoch."),
    "eval_every": typer.Option(
        help="Evaluate after so many steps instead, or their update; 0 does not."
    ),
    "metric": typer.Option(
        "--metric",
        help=f"What to measure there: {', '.join(NAMES)}, or METRIC:PREDICTIONS:LABELS; "
        "repeat. Default: the accuracy if it is known.",
        autocompletion=common.completing(NAMES),
    ),
    "best": typer.Option(help="Keep the checkpoint of the best evaluation here."),
    "restore_best": typer.Option(
        "--restore-best",
        help="Write the model of --best, not that of the last step.",
    ),
    "patience": typer.Option(
        min=0, help="End after so many evaluations that are not better; 0 never."
    ),
    "min_delta": typer.Option(min=0, help="What is better for --patience is so by more than this."),
    "mode": typer.Option(help="What is better: min or max. Default: min for losses and errors."),
    "averaged": typer.Option(
        "--averaged",
        help="Evaluate and write the averages of the weights that train-step --average keeps.",
    ),
    "monitor": typer.Option(help="What --best and --patience watch: eval_loss, eval_accuracy, ..."),
    "metrics": typer.Option(help="Write a row per step here: .csv or .jsonl."),
    "tensorboard": typer.Option(
        help="Write the run into this folder for TensorBoard: scalars, histograms, hyperparameters."
    ),
    "learning_rate": typer.Option(help="Another learning rate than the step's."),
    "find_learning_rate": typer.Option(
        "--find-learning-rate", help="Only try growing learning rates, and suggest one."
    ),
    "seed": typer.Option(help="Decides the order of the examples."),
    "shuffle": typer.Option("--shuffle/--no-shuffle", help="Give each epoch an order of its own."),
    "provider": typer.Option(
        "--provider", help="Execution provider, or the name of its target; repeat."
    ),
    "target": typer.Option(help="Whose kernels --emulate emulates. Default: that of the provider."),
    "threads": typer.Option(
        min=0, help="Threads inside an operator; 0 is all, or a shard's share."
    ),
    "shards": typer.Option(
        help="mpi or torch: this process is one of those that mpiexec or torchrun has started; "
        "each takes its part of every batch."
    ),
    "emulate": typer.Option(
        help="Round as a device with float16 or bfloat16 does; the CPU provider does not."
    ),
    "cuda_graph": typer.Option(
        "--cuda-graph",
        help="Capture each step as a CUDA graph; its loss scale needs --conditional select.",
    ),
    "non_finite": typer.Option(
        help="NaN and infinities in the data: allow, count (and print) or refuse."
    ),
    "ahead": typer.Option(
        help="Batches to read ahead on a thread. Default: 2 for data not in memory."
    ),
}
"""Field of RunOptions -> what it is on the command line."""

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
    *("tensorboard", "learning-rate", "shuffle", "ahead"),
)
"""Options that a search for a learning rate, which trains nothing, has no use for."""


def with_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a run, which it gets as the RunOptions `options`."""

    def run(**given: Any) -> None:
        values = {name: given.pop(name) for name in OPTIONS}
        command(**given, options=RunOptions(**values))

    hints = get_type_hints(RunOptions)
    made: list[Parameter] = []
    for field in fields(RunOptions):
        kind = Annotated[hints[field.name], OPTIONS[field.name]]
        default = Parameter.empty if field.default is MISSING else field.default
        made.append(Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=kind))
    return with_parameters(run, command, made)


def given_options(context: typer.Context) -> set[str]:
    """Return the names of the options that the command line has, without dashes."""
    found: set[str] = set()
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            off = context.params[name] is False and parameter.secondary_opts
            found.add((parameter.secondary_opts if off else parameter.opts)[0].lstrip("-"))
    return found


def check_options(given: Collection[str]) -> None:
    """Refuse options that could only be left out.

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
