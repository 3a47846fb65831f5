"""Epochs over a data set: train, evaluate, save, and go on where training stopped."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from amp_rewrite.errors import (
    CheckpointError,
    DataError,
    DivergenceError,
    FeedError,
    OptionError,
)
from amp_rewrite.train.data.data_set import DataSet
from amp_rewrite.train.loop.evaluation import check_fills, evaluate, rehearse
from amp_rewrite.train.loop.metrics_file import MetricsFile
from amp_rewrite.train.loop.plan import SCALE, Plan, Progress
from amp_rewrite.train.session.input_checks import non_finite
from amp_rewrite.train.session.training_session import TrainingSession
from amp_rewrite.train.step.step_info import LOSS


def resume(session: TrainingSession, plan: Plan) -> Progress:
    """Restore the checkpoint of a plan; return where it was saved.

    Raises:
        OptionError: The plan has no checkpoint.
        CheckpointError: It does not fit the step or the plan.
    """
    if plan.checkpoint is None:
        raise OptionError("nothing to resume from", remedy="name the checkpoint file")
    found = session.restore(plan.checkpoint)
    for name, value in plan.order.items():
        if found.get(name) != value:
            raise CheckpointError(
                f"the checkpoint was saved with another {name}",
                where=plan.checkpoint,
                found=found.get(name, "none"),
                expected=value,
                remedy="resume with the same data order",
            )
    return Progress(int(found["epoch"]), int(found["position"]), int(found["step"]))


def train(
    session: TrainingSession,
    data: DataSet,
    plan: Plan,
    *,
    held_out: DataSet | None = None,
    metrics: MetricsFile | None = None,
    progress: Progress | None = None,
    watch: Callable[[Progress], None] = lambda _: None,
) -> Progress:
    """Train for the epochs of a plan.

    Args:
        session: The session.
        data: The examples.
        plan: How to go through them.
        held_out: What to evaluate on after each epoch, or None.
        metrics: Where rows go, or None.
        progress: Where to begin, as `resume` returned it.
        watch: Is called after every step and every evaluation.

    Returns:
        Where training ended. If the model has a batch of a fixed size, the examples of an epoch
        that do not fill one are left out.

    Raises:
        DivergenceError: A loss is not finite, or a weight is NaN at the end of an epoch.
        LossScaleError: The loss scale has collapsed.
        FeedError: The data do not fit the inputs of the step; held-out data are tried first.
        DataError: They do not fill one batch of a fixed size; or one of them names a class or a row
            that does not exist, holds numbers that are not finite and refused, or would be alone in
            a batch that is normalized.
        SaveError: A checkpoint cannot be written.
    """
    at = progress or Progress()
    check_fills(data, plan.batch, session)
    _check_data(session, data, _sizes(session, data, plan.batch))
    if held_out is not None:
        _check_data(session, held_out)
        rehearse(session, held_out, plan.batch)
    start = time.perf_counter()
    watched = (LOSS, *(name for name in SCALE if session.info.having(name) is not None))

    def note(**row: Any) -> None:
        if metrics is not None:
            seconds = round(time.perf_counter() - start, 4)
            metrics.add(epoch=at.epoch + 1, step=at.step, seconds=seconds, **row)

    while at.epoch < plan.epochs:
        order = data.shuffled(plan.seed, at.epoch) if plan.shuffle else None
        for feeds in data.batches(
            plan.batch, order=order, start=at.batch, drop_last=session.fixed_batch
        ):
            at.note(session.run(feeds, watched))
            at.batch, at.step = at.batch + 1, at.step + 1
            _check_finite(session, at, feeds)
            note(loss=at.loss, loss_scale=at.loss_scale, skipped_steps=at.skipped_steps)
            watch(at)
            if plan.every and at.step % plan.every == 0:
                _check_weights(session, at)
                _save(session, plan, at)
        if held_out is not None:
            at.evaluation = evaluate(session, held_out, plan.batch)
            note(**at.evaluation)
        at.epoch, at.batch = at.epoch + 1, 0
        watch(at)
        _check_weights(session, at)
        _save(session, plan, at)
    return at


def _check_data(session: TrainingSession, data: DataSet, batches: Collection[int] = ()) -> None:
    """Find examples that a step would refuse before the first step.

    Raises:
        DataError: There is one.
    """
    try:
        session.check_examples(data.arrays, batches)
    except FeedError as error:
        raise DataError(
            error.what,
            where=" ".join(str(w) for w in (data.where, error.where) if w is not None) or None,
            found=error.found,
            expected=error.expected,
            remedy=error.remedy,
        ) from error


def _sizes(session: TrainingSession, data: DataSet, batch: int) -> set[int]:
    """Return the sizes of the batches of an epoch."""
    last = 0 if session.fixed_batch else data.size % batch
    return {size for size in (min(batch, data.size), last) if size}


def _check_finite(session: TrainingSession, at: Progress, feeds: Mapping[str, Any]) -> None:
    if math.isfinite(at.loss) or session.info.having("loss_scale") is not None:
        return
    fed = non_finite(feeds)
    if fed:
        raise DivergenceError(
            "the loss is not finite, and the batch holds numbers that are not",
            where=f"step {at.step}",
            found=", ".join(f"{name}: {count} not finite" for name, count in fed.items()),
            remedy="leave such examples out; --non-finite refuse finds the first one",
        )
    raise DivergenceError(
        "the loss is not finite",
        where=f"step {at.step}",
        found=at.loss,
        remedy="lower the learning rate or clip the gradients, and resume from a checkpoint",
    )


def _check_weights(session: TrainingSession, at: Progress) -> None:
    """Refuse weights that a gradient of NaN has spoilt, which the loss tells one step later."""
    for state in session.info.states:
        if state.role == "variable" and np.isnan(session.read_state(state.name)).any():
            raise DivergenceError(
                "a weight has become NaN",
                where=f"step {at.step}",
                found=state.name,
                remedy="look for a root or a logarithm of 0 before it, lower the learning rate or "
                "clip the gradients, and resume from a checkpoint",
            )


def _save(session: TrainingSession, plan: Plan, at: Progress) -> None:
    if plan.checkpoint is not None:
        where = {"epoch": at.epoch, "position": at.batch, "step": at.step}
        session.save(plan.checkpoint, where | plan.order)
