"""`amp-rewrite inject`: put a loss scale into a finished training graph."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from amp_rewrite.base.progress import progress_bar
from amp_rewrite.cli import common
from amp_rewrite.cli.parameters import TRAINING, argument, option
from amp_rewrite.cli.rewrite_options import with_rewrite_options
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.io.checker import refuse_invalid
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.io.save import save
from amp_rewrite.loop.recipe import loss_scale_of
from amp_rewrite.rewriting.plan.options import RewriteOptions
from amp_rewrite.training.inject import inject_loss_scaling
from amp_rewrite.training.step.read_info import read_info
from amp_rewrite.training.step.step_info import StepInfo


@with_rewrite_options
def inject(
    graph: Path = argument("A training graph, or a step from `amp-rewrite train-step`."),
    output: Path = option(..., "The step to write.", "-o"),
    loss: str | None = option(None, "Name of the loss. Not needed for a step of train-step."),
    seed: str | None = option(None, "Name of the value where the backward pass starts."),
    gradient: list[str] | None = option(None, "VARIABLE=NAME of its gradient."),
    update: list[str] | None = option(None, "STATE=NAME of its value after the step."),
    loss_scale: str = option(
        "dynamic", "dynamic, or a number for a fixed loss scale.", group=TRAINING
    ),
    conditional: common.Conditional = "if",
    max_skips: common.MaxSkips = 20,
    precision: str = option(
        FLOAT32.name, "float16 or bfloat16: also convert the forward and backward pass."
    ),
    *,
    options: RewriteOptions,
    quiet: common.Quiet = False,
) -> None:
    """Add loss scaling to a training graph: scaled gradients, conditional updates."""
    common.check_files([graph], output=output)
    with progress_bar("injecting", quiet=quiet) as progress:
        step = inject_loss_scaling(
            graph,
            loss,
            seed,
            _pairs("--gradient", gradient),
            _pairs("--update", update),
            loss_scale_of(loss_scale, max_skips),
            conditional,
            precision=precision,
            options=options,
        )
        refuse_invalid(step, partial(load, graph), graph)
        save(step, output, progress=progress)
    if not quiet:
        _print(read_info(step), conditional, output)


def _pairs(option: str, texts: Iterable[str] | None) -> dict[str, str] | None:
    """Return what NAME=VALUE options say; None if there are none.

    Raises:
        OptionError: One has no equals sign, or a name is given twice.
    """
    values: dict[str, str] = {}
    for text in texts or ():
        name, _, value = text.partition("=")
        if not name or not value:
            raise OptionError(f"{option} needs two names", found=repr(text), expected="NAME=VALUE")
        if name in values:
            raise OptionError(f"{option} is given twice for one name", where=name)
        values[name] = value
    return values or None


def _print(info: StepInfo, conditional: str, output: Path) -> None:
    out = common.console()
    gradients = len(info.gradients or ())
    updates = sum(not state.name.startswith("loss_scale/") for state in info.states)
    checked = "" if "grads_finite" not in info.fetches else f", {updates} updates by {conditional}"
    out.print(f"seed {info.seed}: {gradients} gradients unscaled{checked}")
    out.print(f"feeds: {', '.join(info.inputs)}")
    out.print(common.wrote(output))
