"""`amp-rewrite train-step`: add gradients and an optimizer to a forward model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from amp_rewrite.base.printable import counted, share
from amp_rewrite.base.progress import progress_bar
from amp_rewrite.cli import common
from amp_rewrite.cli.parameters import ADVANCED, CHECKING, TRAINING, argument, option
from amp_rewrite.cli.rewrite_options import with_rewrite_options
from amp_rewrite.distributed import CrossShardOptimizer, shard_context
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import StepError
from amp_rewrite.graph.io.checker import checker_error, refuse_faults
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.io.save import save
from amp_rewrite.graph.metadata_keys import STEP_KEY
from amp_rewrite.loop.recipe import KINDS, loss_of, optimizer_of, scaled
from amp_rewrite.rewriting.plan.options import RewriteOptions
from amp_rewrite.training.graph.freeze import freeze as choose_frozen
from amp_rewrite.training.graph.freeze import unfreeze as choose_trained
from amp_rewrite.training.graph.training_graph import GraphValue, training_graph
from amp_rewrite.training.optimizers.registry import NAMES
from amp_rewrite.training.step.build_step import step_model
from amp_rewrite.training.step.precision import chosen_precision, in_precision
from amp_rewrite.training.step.read_info import read_info
from amp_rewrite.training.step.step import whole_step
from amp_rewrite.training.step.step_info import StepInfo


@with_rewrite_options
def train_step(
    forward: Path = argument("The ONNX model to train."),
    output: Path = option(..., "The step to write.", "-o"),
    loss: str = option(
        ...,
        "Name of a loss in the model, or a loss to add: KIND:LOGITS:LABELS. Labels that "
        f"the model lacks become an input. Kinds: {', '.join(KINDS)}.",
    ),
    loss_option: list[str] | None = option(
        None, "An argument of the loss, for example label-smoothing=0.1.", group=ADVANCED
    ),
    optimizer: str = option("adam", f"One of {', '.join(NAMES)}.", choices=NAMES),
    learning_rate: float | None = option(None, "Learning rate. Default: the optimizer's."),
    option: list[str] | None = option(
        None, "KEY=VALUE: an argument of the optimizer.", group=TRAINING
    ),
    accumulate: int = option(
        1, "Accumulate the gradients of N batches for one update.", group=TRAINING, min=1
    ),
    freeze: list[str] | None = option(
        None, "Do not train weights of this pattern.", group=TRAINING
    ),
    unfreeze: list[str] | None = option(
        None,
        "Train weights of this pattern although they look like constants (an attention scale).",
        group=TRAINING,
    ),
    fetch: list[str] | None = option(None, "Also output this value.", group=ADVANCED),
    seed: int = option(0, "Seed of Dropout.", group=CHECKING, min=0),
    precision: str = option(
        FLOAT32.name, "Type of the forward and backward pass: float32, float16 or bfloat16."
    ),
    *,
    options: RewriteOptions,
    loss_scale: str | None = option(
        None,
        "dynamic, a number (fixed), or none. Default: dynamic for float16, else none.",
        group=TRAINING,
    ),
    loss_scale_option: list[str] | None = option(
        None,
        "An argument of the dynamic loss scale, for example increment-period=500.",
        group=TRAINING,
    ),
    conditional: str = option(
        "if",
        "How a step is skipped: if (control flow), or select (a choice per state).",
        group=TRAINING,
    ),
    max_skips: int = option(
        20,
        "Stop after N skipped steps in a row at loss scale 1 (0 = never).",
        group=TRAINING,
        min=0,
    ),
    cross_shard: str | None = option(
        None,
        "mean or sum: reduce gradients over shards, for train --shards. mean divides "
        "the loss by the number of shards.",
        group=ADVANCED,
    ),
    quiet: bool = common.QUIET,
) -> None:
    """Build a training step for FORWARD: an ONNX model that any runtime can run."""
    common.check_files([forward], output=output)
    model = load(forward)
    if STEP_KEY in model.metadata_props:
        raise StepError(
            "the model is a training step already",
            where=forward,
            remedy="train it with amp-rewrite train, or name the forward model",
        )
    nodes = len(model.graph)
    minimized = loss_of(model, loss, loss_option or ())
    if unfreeze:
        choose_trained(model, unfreeze)
    if freeze:
        choose_frozen(model, freeze)
    rule = optimizer_of(optimizer, learning_rate, option or ())
    if cross_shard is not None:
        rule = CrossShardOptimizer(rule, cross_shard)
    rule = scaled(
        rule,
        loss_scale,
        chosen_precision(precision),
        conditional,
        max_skips,
        loss_scale_option or (),
    )
    global_step = training_graph(model).global_step()
    with progress_bar("differentiating", quiet=quiet) as progress:
        with shard_context():
            op = rule.minimize(minimized, global_step, accumulate=accumulate)
        progress("rewriting")
        whole = in_precision(whole_step(op, seed=seed), precision, options)
        summary = None if quiet or whole.rewriting is None else whole.rewriting.report.summary
        step = step_model(whole, fetch or ())
        refuse_faults(checker_error(step), lambda: checker_error(load(forward)), forward)
        save(step, output, progress=progress)
    if not quiet:
        common.say_cpu(common.console(), options.target)
        _print(read_info(step), nodes, len(step.graph))
        if summary is not None:
            common.console().print(
                f"{whole.info.precision}: {summary.nodes_converted} of {summary.float_nodes} "
                f"float32 nodes, {share(summary.compute_converted, 1)} of the "
                f"multiply-accumulates; {counted(summary.casts_added, 'cast')}"
            )
        common.console().print(common.wrote(output))
        _print_notes(minimized, freezes=bool(freeze))


def _print(info: StepInfo, before: int, after: int) -> None:
    out = common.console()
    states = ", ".join(f"{n} {role}" for role, n in Counter(s.role for s in info.states).items())
    out.print(f"{before} nodes -> {after}; state tensors: {states}")
    out.print(f"feeds: {', '.join(info.inputs)}")
    if info.loss_scale is not None:
        out.print(f"loss scale: {_loss_scale_text(info.loss_scale)}")


def _loss_scale_text(config: Mapping[str, Any]) -> str:
    """Return a loss scale in words, given its configuration as a step holds it."""
    scale: Mapping[str, Any] = config["config"]
    if "loss_scale_value" in scale:
        unchecked = config.get("class_name") == "UncheckedLossScale"
        return f"{scale['loss_scale_value']:g}, {'unchecked' if unchecked else 'fixed'}"
    return (
        f"dynamic from {scale['initial_loss_scale']:g}, times {scale['multiplier']:g} after "
        f"{scale['increment_period']} good steps"
    )


def _print_notes(loss: GraphValue, *, freezes: bool) -> None:
    """Name what seems to be a constant of a formula and is not trained, and what may be one."""
    graph = loss.graph
    weights = list(graph.weights(loss.value))
    constants = [v.name for v in weights if v.name in graph.constants and graph.is_frozen(v.name)]
    trained = [v for v in weights if not graph.is_frozen(v.name)]
    numbers = [v.name for v in trained if math.prod(v.shape) == 1]
    out = common.error_console()
    if constants:
        out.print(
            f"note: {len(constants)} of {len(weights)} weights seem to be constants of "
            f"formulas and are not trained ({_some(constants)}); --unfreeze NAMES trains them",
        )
    if numbers and not freezes:
        out.print(
            f"note: {len(numbers)} of {len(trained)} trained variables are single numbers "
            f"({_some(numbers)}); --freeze NAMES keeps those that are constants, such as an "
            "epsilon",
        )


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
