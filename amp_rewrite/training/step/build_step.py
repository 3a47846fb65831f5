"""From a TrainOp to a step: an ordinary ONNX model that any runtime can run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

import onnx_ir as ir

from amp_rewrite import targets as known_targets
from amp_rewrite.rewriting.plan.options import (
    RewriteOptions,
    StepChanges,
    changed,
    with_option_names,
)
from amp_rewrite.training.graph.replicas import define
from amp_rewrite.training.optimizers.learning_rate import LEARNING_RATE
from amp_rewrite.training.step.batch_norm import spell_out_batch_norms
from amp_rewrite.training.step.cut_step import cut_step
from amp_rewrite.training.step.precision import in_precision, low_of
from amp_rewrite.training.step.step import Step, whole_step
from amp_rewrite.training.step.step_info import DEFAULT_FETCHES
from amp_rewrite.training.step.trained_model import checked_targets, fetched_names, keep_forward

if TYPE_CHECKING:
    from amp_rewrite.training.optimizers.train_op import TrainOp

_COUNTERS = ("loss_scale", "good_steps", "skipped_steps", "consecutive_skips", "gradient_norm")
"""Outputs of the model of a step with a loss scale that checks, which computes them in any case."""


@with_option_names
def build_step(
    train_op: TrainOp,
    fetches: str | Iterable[str] = (),
    *,
    seed: int = 0,
    targets: Mapping[str, Any] | None = None,
    precision: str | None = None,
    options: RewriteOptions | None = None,
    **changes: Unpack[StepChanges],
) -> ir.Model:
    """Return the training step of a TrainOp as an ordinary ONNX model.

    Inputs are the data inputs that the step reads and one input per state tensor, whose default is
    its initial value. Outputs are the loss, the fetches, and the next value of every state;
    `metadata_props["amp_rewrite.step"]` pairs inputs and outputs.

    Args:
        train_op: The result of `Optimizer.minimize`; not changed.
        fetches: Names of values to compute besides the loss.
        seed: The seed of Dropout.
        targets: The values that evaluation compares, where the loss does not tell: the names of the
            "logits" or other "predictions" and of the "labels", and the "ignore_index" of labels.
        precision: The type of forward and backward: "float32", "float16" or "bfloat16". None is
            that of `options`; without them float32, or the choice of
            enable_mixed_precision_graph_rewrite. States, inputs and fetches are float32.
        options: Options of the rewrite, as for `amp_rewrite.rewrite`.
        **changes: Single options by name, as for `amp_rewrite.rewrite`.

    Raises:
        StepError: It is no TrainOp, or an update does not fit its state.
        FetchError: A name in `fetches` is unknown.
        OptionError: Another argument is impossible.

    Examples:
        >>> model = amp.load("model.onnx")
        >>> loss = amp.losses.softmax_cross_entropy(model, "logits", "labels")
        >>> step = amp.build_step(amp.optimizers.GradientDescent(0.1).minimize(loss))
        >>> [value.name for value in step.graph.inputs]
        ['x', 'labels', 'w1', 'w2', 'global_step', 'learning_rate']
        >>> amp.save(step, "step.onnx")
    """
    if "target" in changes and "precision" not in changes and options is None:
        changes = {
            **changes,
            **low_of(precision, known_targets.find(changes["target"] or known_targets.DEFAULT)),
        }
    chosen = changed(options, **changes)
    if precision is None and options is not None:
        precision = chosen.precision
    step = in_precision(whole_step(train_op, seed=seed), precision, chosen)
    return step_model(step, fetches, targets=targets)


def step_model(
    step: Step, fetches: str | Iterable[str] = (), *, targets: Mapping[str, Any] | None = None
) -> ir.Model:
    """Return the model of `build_step` for a step that is there already."""
    told = {**(step.info.targets or {}), **checked_targets(targets)}
    info = replace(step.info, targets=told or None)
    checked = info.having("consecutive_skips") is not None
    always = DEFAULT_FETCHES + _COUNTERS if checked else DEFAULT_FETCHES
    if info.fetches.get(LEARNING_RATE) not in info.names:
        always = (*always, LEARNING_RATE)  # of a schedule: a number that the step computes anyway
    fetched = [name for name in always if name in info.fetches]
    model, forward = step.model, step.original()
    cut_step(model, info, (*fetched, *fetched_names(fetches)))
    spell_out_batch_norms(model)
    keep_forward(model, forward, set(info.names))
    define(model)
    return model
