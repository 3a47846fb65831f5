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
        help="The step from `amp-rewrite train-step`, or a model with training_info."
    ),
    "data": typer.Option(
        help="Training data: .npz or a folder of .npy files (one array per input, examples along "
        "the first axis); CSV, Parquet or Arrow (one column per input); a folder of images by "
        "class."
    ),
    "epochs": typer.Option(help="Epochs in all."),
    "batch": typer.Option(help="Batch size over all shards."),
    "output": typer.Option("--output", "-o", help="The trained inference model to write."),
    "adapters": typer.Option(
        help="Write only the adapters of train-step --lora into this folder, as PEFT does."
    ),
    "checkpoint": typer.Option(
        help="Save the training state here (safetensors) after every epoch."
    ),
    "checkpoint_every": typer.Option(help="Also save every N steps (0 = off)."),
    "resume": typer.Option("--resume", help="Continue from --checkpoint, bit for bit."),
    "restore": typer.Option(help="Start with the states of this checkpoint."),
    "strict": typer.Option(
        "--strict/--no-strict",
        help="--no-strict restores what fits by name, shape and type, and prints the rest.",
    ),
    "held_out": typer.Option("--eval", help="Held-out data, evaluated after every epoch."),
    "eval_every": typer.Option(help="Evaluate every N steps (0 = after every epoch)."),
    "metric": typer.Option(
        "--metric",
        help=f"Metric of the evaluation: {', '.join(NAMES)}, or METRIC:PREDICTIONS:LABELS; "
        "repeatable. Default: accuracy, if the loss has labels.",
        autocompletion=common.completing(NAMES),
    ),
    "best": typer.Option(help="Save the checkpoint of the best evaluation here."),
    "restore_best": typer.Option(
        "--restore-best",
        help="Write the model of --best, not of the last step.",
    ),
    "patience": typer.Option(
        min=0, help="Stop after N evaluations without improvement (0 = never)."
    ),
    "min_delta": typer.Option(min=0, help="Smallest improvement that counts."),
    "mode": typer.Option(
        help="min or max: which value is better. Default: min for losses and errors."
    ),
    "averaged": typer.Option(
        "--averaged",
        help="Evaluate and write the averaged weights of train-step --average.",
    ),
    "monitor": typer.Option(
        help="Value that --best and --patience watch: eval_loss, eval_accuracy, ..."
    ),
    "metrics": typer.Option(help="Write one row per step here (.csv or .jsonl)."),
    "tensorboard": typer.Option(
        help="Folder for TensorBoard: scalars, histograms, hyperparameters."
    ),
    "learning_rate": typer.Option(help="Learning rate. Default: the step's own."),
    "find_learning_rate": typer.Option(
        "--find-learning-rate", help="Only run a learning-rate range test, and suggest a rate."
    ),
    "seed": typer.Option(help="Seed of the order of examples."),
    "shuffle": typer.Option("--shuffle/--no-shuffle", help="Shuffle the examples in every epoch."),
    "provider": typer.Option(
        "--provider", help="Execution provider, or a target's name; repeatable."
    ),
    "target": typer.Option(
        help="Target whose kernels --emulate emulates. Default: the provider's."
    ),
    "threads": typer.Option(
        min=0, help="Threads per operator (0 = all cores, or a shard's share)."
    ),
    "shards": typer.Option(
        help="mpi or torch: train in the processes started by mpiexec or torchrun; each takes its "
        "part of every batch."
    ),
    "emulate": typer.Option(help="Emulate 16-bit rounding, which the CPU provider does not do."),
    "cuda_graph": typer.Option(
        "--cuda-graph",
        help="Capture each step as a CUDA graph; needs a step with --conditional select.",
    ),
    "non_finite": typer.Option(
        help="NaN and infinite values in the data: allow, count (and print) or refuse."
    ),
    "ahead": typer.Option(
        help="Batches to prefetch on a thread. Default: 2 for data not in memory."
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

    def run(**arguments: Any) -> None:
        values = {name: arguments.pop(name) for name in OPTIONS}
        command(**arguments, options=RunOptions(**values))

    hints = get_type_hints(RunOptions)
    parameters: list[Parameter] = []
    for field in fields(RunOptions):
        kind = Annotated[hints[field.name], OPTIONS[field.name]]
        default = Parameter.empty if field.default is MISSING else field.default
        parameters.append(
            Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        )
    return with_parameters(run, command, parameters)


def given_options(context: typer.Context) -> set[str]:
    """Return the names of the options that the command line has, without dashes."""
    names: set[str] = set()
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            off = context.params[name] is False and parameter.secondary_opts
            names.add((parameter.secondary_opts if off else parameter.opts)[0].lstrip("-"))
    return names


def check_options(names: Collection[str]) -> None:
    """Refuse options that could only be left out.

    Raises:
        OptionError: There is one.
    """
    if _SEARCH in names:
        useless = [name for name in _OF_A_RUN if name in names]
        if "checkpoint" in names and "resume" not in names:
            useless.append("checkpoint")
        if useless:
            raise OptionError(
                f"--{_SEARCH} trains nothing and writes nothing",
                found=_list_names(useless),
                remedy="omit them" if useless[1:] else "omit it",
            )
    for name, needed in _NEEDS.items():
        if name in names and not set(needed) & set(names):
            raise OptionError(
                f"--{name} does nothing without {_list_names(needed, ' or ')}",
                remedy=f"add {_list_names(needed, ' or ')}, or omit --{name}",
            )


def _list_names(names: Collection[str], between: str = ", ") -> str:
    return between.join(f"--{name}" for name in names)
