"""`amp-rewrite train-step`: add gradients and an optimizer to a forward model."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from amp_rewrite import targets
from amp_rewrite.base.progress import progress_bar
from amp_rewrite.cli import common
from amp_rewrite.cli.rewrite_options import with_rewrite_options
from amp_rewrite.distributed import CrossShardOptimizer, shard_context
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import OptionError, StepError
from amp_rewrite.graph.invariants.structure_valid import refuse_invalid
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.io.model_files import check_output_path, check_writable
from amp_rewrite.graph.io.save import save
from amp_rewrite.graph.metadata_keys import STEP_KEY
from amp_rewrite.loop.recipe.chosen_model import KINDS, add_adapters, loss_of, store
from amp_rewrite.loop.recipe.chosen_optimizer import (
    averaging,
    grouped,
    minimize,
    optimizer_of,
    scaled,
    variables_of,
)
from amp_rewrite.rewriting.plan.options import RewriteOptions
from amp_rewrite.rewriting.report.records import Summary
from amp_rewrite.training.graph.recompute import recompute as choose_recomputed
from amp_rewrite.training.graph.training_graph import GraphValue, State, training_graph
from amp_rewrite.training.optimizers.registry import NAMES
from amp_rewrite.training.step.build_step import step_model
from amp_rewrite.training.step.missing_kernels import refuse_unloadable
from amp_rewrite.training.step.precision import chosen_precision, in_precision
from amp_rewrite.training.step.read_info import read_info
from amp_rewrite.training.step.step import whole_step
from amp_rewrite.training.step.step_info import StepInfo


@with_rewrite_options("precision", "keep_io_types", "variables", "overflow", "only")
def train_step(
    forward: Annotated[Path, typer.Argument(help="The ONNX model to train.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The step to write.")],
    loss: Annotated[
        str,
        typer.Option(
            help="Name of a loss in the model, or a loss to add: KIND:LOGITS:LABELS. Labels that "
            f"the model lacks become an input. Kinds: {', '.join(KINDS)}."
        ),
    ],
    loss_option: Annotated[
        list[str] | None,
        typer.Option(
            "--loss-option",
            help="An argument of the loss, for example label-smoothing=0.1; repeatable.",
        ),
    ] = None,
    optimizer: Annotated[
        str,
        typer.Option(help=f"One of {', '.join(NAMES)}.", autocompletion=common.completing(NAMES)),
    ] = "adam",
    learning_rate: Annotated[
        float | None, typer.Option(help="Learning rate. Default: the optimizer's.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", help="KEY=VALUE: an argument of the optimizer; repeatable."),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(
            "--group",
            help="Other settings for some variables: 'PATTERNS KEY=NUMBER ...' with "
            "learning_rate, rate_multiplier, weight_decay, clipnorm, clipvalue or "
            "global_clipnorm, for example 'encoder.*|embedding rate_multiplier=0.1'; repeatable.",
        ),
    ] = None,
    no_decay: Annotated[
        str | None,
        typer.Option(help="Variables without weight decay: patterns, or bias,norm."),
    ] = None,
    schedule: Annotated[
        str,
        typer.Option(
            help="Learning-rate schedule: constant, step:STEPS[:RATE] or cosine:STEPS[:ALPHA]."
        ),
    ] = "constant",
    warm_up: Annotated[
        int, typer.Option(min=0, help="Warm-up steps, in which the learning rate grows from 0.")
    ] = 0,
    clip_norm: Annotated[
        float | None,
        typer.Option(help="Clip the gradients to this global norm."),
    ] = None,
    accumulate: Annotated[
        int, typer.Option(min=1, help="Accumulate the gradients of N batches for one update.")
    ] = 1,
    average: Annotated[
        str | None,
        typer.Option(
            help="Average the weights, for train --averaged: ema[:DECAY], or swa[:START[:EVERY]], "
            "the mean of every EVERY-th step after START."
        ),
    ] = None,
    variable: Annotated[
        list[str] | None,
        typer.Option("--variable", help="Train only weights of this pattern; repeatable."),
    ] = None,
    freeze: Annotated[
        list[str] | None,
        typer.Option("--freeze", help="Do not train weights of this pattern; repeatable."),
    ] = None,
    unfreeze: Annotated[
        list[str] | None,
        typer.Option(
            "--unfreeze",
            help="Train weights of this pattern although they look like constants (an attention "
            "scale) or --lora freezes them; repeatable.",
        ),
    ] = None,
    lora: Annotated[
        str | None,
        typer.Option(
            help="Train low-rank adapters of these weights and freeze the rest: patterns such as "
            "'*.q_proj|*.v_proj'."
        ),
    ] = None,
    lora_option: Annotated[
        list[str] | None,
        typer.Option(
            "--lora-option",
            help="rank=8, alpha=16, dropout=0.05 or seed=0 of the adapters; repeatable.",
        ),
    ] = None,
    store_weights: Annotated[
        str | None,
        typer.Option(
            help="Store weights in bfloat16 or float16, without float32 masters; DTYPE:PATTERNS "
            "for some of them. --option rounding=stochastic (or compensated) rounds the updates."
        ),
    ] = None,
    recompute: Annotated[
        str | None,
        typer.Option(
            help="Recompute activations in the backward pass instead of storing them: 'every 2 "
            "blocks', or patterns of node names."
        ),
    ] = None,
    train_statistics: Annotated[
        bool | None,
        typer.Option(
            help="Let BatchNormalization use and track batch statistics. Default: where its scale "
            "or bias is trained."
        ),
    ] = None,
    train_dropout: Annotated[
        bool, typer.Option(help="Apply Dropout behind frozen weights too.")
    ] = True,
    fetch: Annotated[
        list[str] | None, typer.Option("--fetch", help="Also output this value; repeatable.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of Dropout.")] = 0,
    precision: Annotated[
        str,
        typer.Option(help="Type of the forward and backward pass: float32, float16 or bfloat16."),
    ] = FLOAT32.name,
    *,
    options: RewriteOptions,
    loss_scale: Annotated[
        str | None,
        typer.Option(
            help="dynamic, a number (fixed), or none. Default: dynamic for float16, else none."
        ),
    ] = None,
    loss_scale_option: Annotated[
        list[str] | None,
        typer.Option(
            "--loss-scale-option",
            help="An argument of the dynamic loss scale, for example increment-period=500; "
            "repeatable.",
        ),
    ] = None,
    conditional: common.Conditional = "if",
    max_skips: common.MaxSkips = 20,
    cross_shard: Annotated[
        str | None,
        typer.Option(
            help="mean or sum: reduce gradients over shards, for train --shards. mean divides the "
            "loss by the number of shards."
        ),
    ] = None,
    quiet: common.Quiet = False,
) -> None:
    """Build a training step for FORWARD: an ONNX model that any runtime can run."""
    check_output_path(forward, output)
    check_writable(output)
    model = load(forward)
    if STEP_KEY in model.metadata_props:
        raise StepError(
            "the model is a training step already",
            where=forward,
            remedy="train it with amp-rewrite train, or name the forward model",
        )
    if lora is not None and variable:
        raise OptionError(
            "--lora says what is trained, and so does --variable",
            found=", ".join(variable),
            remedy="use --unfreeze to train more than the adapters",
        )
    nodes = len(model.graph)
    minimized = loss_of(model, loss, loss_option or ())
    rule = optimizer_of(optimizer, learning_rate, option or (), schedule, warm_up)
    rule = averaging(grouped(rule, group or (), no_decay), average)
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
    graph = training_graph(model)
    add_adapters(model, lora, lora_option or ())
    store(model, store_weights)
    if recompute is not None:
        choose_recomputed(model, recompute)
    chosen = variables_of(minimized, variable or (), freeze or (), unfreeze or ())
    graph.freezing.train_statistics = train_statistics
    graph.freezing.train_dropout = train_dropout
    with progress_bar("differentiating", quiet=quiet) as progress:
        with shard_context():
            op = minimize(rule, minimized, graph.global_step(), chosen, clip_norm, accumulate)
        progress("rewriting")
        whole = in_precision(whole_step(op, seed=seed), precision, options)
        summary = None if quiet or whole.rewriting is None else whole.rewriting.report.summary
        step = step_model(whole, fetch or ())
        refuse_unloadable(step, targets.find(options.target or targets.DEFAULT))
        refuse_invalid(step, partial(load, forward), forward)
        save(step, output, progress=progress)
    if not quiet:
        common.say_cpu(options.target, common.console())
        _print(read_info(step), nodes, len(step.graph))
        if summary is not None:
            _print_rewriting(whole.info.precision, summary)
        common.console().print(f"wrote {output}")
    if not quiet and not variable and lora is None:
        _note_constants(minimized, chosen)
        if not freeze:
            _note_numbers(chosen)


def _print(info: StepInfo, before: int, after: int) -> None:
    out = common.console()
    counts: dict[str, int] = {}
    for state in info.states:
        counts[state.role] = counts.get(state.role, 0) + 1
    states = ", ".join(f"{n} {role}" for role, n in counts.items())
    out.print(f"{before} nodes -> {after}; state tensors: {states}")
    out.print(f"feeds: {', '.join(info.inputs)}")
    if info.loss_scale is not None:
        out.print(f"loss scale: {common.loss_scale_text(info.loss_scale)}")


def _print_rewriting(precision: str, summary: Summary) -> None:
    common.console().print(
        f"{precision}: {summary.nodes_converted} of {summary.float_nodes} float32 nodes, "
        f"{summary.compute_converted:.1%} of the multiply-accumulates; {summary.casts_added} casts"
    )


def _note_constants(loss: GraphValue, trained: list[State]) -> None:
    """Name what seems to be a constant of a formula and is not trained."""
    names = {v.name for v in trained}
    left = [v.name for v in loss.graph.weights(loss.value) if v.name not in names]
    constants = [name for name in left if name in loss.graph.constants]
    if constants:
        shown = ", ".join(constants[:3]) + (", ..." if len(constants) > 3 else "")
        common.error_console().print(
            f"note: {len(constants)} of {len(names) + len(left)} weights seem to be constants of "
            f"formulas and are not trained ({shown}); --unfreeze NAMES trains them",
        )


def _note_numbers(variables: list[State]) -> None:
    """Name variables of one element, which may still be constants of a formula."""
    numbers = [v.name for v in variables if math.prod(v.shape) == 1]
    if numbers:
        shown = ", ".join(numbers[:3]) + (", ..." if len(numbers) > 3 else "")
        common.error_console().print(
            f"note: {len(numbers)} of {len(variables)} trained variables are single numbers "
            f"({shown}); --freeze NAMES keeps those that are constants, such as an epsilon",
        )
