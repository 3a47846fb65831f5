"""Epochs over examples: train, evaluate, save, and go on where training stopped."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np

from amp_rewrite.errors import (
    DataError,
    DivergenceError,
    FeedError,
    LossScaleError,
    OptionError,
    placed,
)
from amp_rewrite.loop.evaluation import check_fills, evaluate, rehearse
from amp_rewrite.loop.metrics import Metrics
from amp_rewrite.loop.plan_and_progress import SCALE, Plan, Progress, check_begin, read_back
from amp_rewrite.loop.run_with_callbacks import Callback, Run
from amp_rewrite.training.data.examples import Batch, Examples
from amp_rewrite.training.session.feeds import non_finite
from amp_rewrite.training.session.training_session import TrainingSession
from amp_rewrite.training.step.step_info import LOSS

_SKIPS = 20
"""Skipped steps in a row at the lowest loss scale that end training, if the scale says nothing."""
_LEAVE_OUT = "leave such examples out: np.argwhere(~np.isfinite(x)) finds them"


def resume(session: TrainingSession, plan: Plan) -> Progress:
    """Restore the checkpoint of a plan; return where it was saved.

    Raises:
        OptionError: The plan has no checkpoint.
        CheckpointError: It does not fit the step or the plan, or training did not save it.
    """
    if plan.checkpoint is None:
        raise OptionError("nothing to resume from", remedy="name the checkpoint file")
    return read_back(session.restore(plan.checkpoint), plan)


def train(
    session: TrainingSession,
    data: Examples,
    plan: Plan,
    *,
    held_out: Examples | None = None,
    metrics: Metrics = None,
    callbacks: Sequence[Callback] = (),
    progress: Progress | None = None,
) -> Run:
    """Train for the epochs of a plan; `Trainer.train` says what the arguments are and raises.

    Data in memory are looked through before the first step, others when their batch comes; held-out
    data are tried first. If the model has a batch of a fixed size, the examples of an epoch that do
    not fill one are left out. `progress` is where to begin, as `resume` returned it.

    Returns:
        The run: where training ended, and why if that is before its plan.
    """
    progress = progress or Progress()
    _check_data(session, data, plan, progress)
    measures = _rehearse(session, held_out, plan, metrics)
    run = Run(session, plan, callbacks, progress, measures)
    run.call("check")
    asked = run.fetches()
    limit = session.skip_limit
    session.limit_skips(limit or _SKIPS)
    try:
        run.call("on_begin")
        while run.at.epoch < plan.epochs and not run.ends():
            if _train_epoch(run, data, asked):
                _end_epoch(run, held_out, metrics)
    except BaseException as error:
        run.failed = error
        raise
    finally:
        session.limit_skips(limit)
        run.call("on_end")
    return run


def _rehearse(
    session: TrainingSession, held_out: Examples | None, plan: Plan, metrics: Metrics
) -> Sequence[str]:
    """Return what evaluations will find, having looked at the first held-out batch."""
    if held_out is None:
        if metrics is not None:
            raise OptionError(
                "there are no held-out data to evaluate", found="metrics", remedy="name them"
            )
        return ()
    if held_out.arrays is not None:
        _check_examples(session, held_out)
    return rehearse(session, held_out, plan.batch, metrics)


def _check_data(session: TrainingSession, data: Examples, plan: Plan, progress: Progress) -> None:
    """Refuse data that would be found unfit only after steps that were trained in vain."""
    epochs = plan.epochs - progress.epoch
    if data.once and epochs > 1:
        raise DataError(
            "the data can be read only once",
            where=data.where,
            found=f"{epochs} epochs",
            remedy="pass a function that returns a new iterator for each epoch",
        )
    check_fills(data, plan.batch, session)
    steps = data.steps(plan.batch, drop_last=session.fixed_batch)
    check_begin(progress, steps, plan.checkpoint)
    if data.size is not None:
        _check_examples(session, data)


def _check_examples(session: TrainingSession, data: Examples) -> None:
    """Find examples in memory that a step would refuse."""
    try:
        session.check_examples(data.arrays or {})
    except FeedError as error:
        where = " ".join(str(w) for w in (data.where, error.where) if w is not None) or None
        raise placed(error, where, DataError) from error


def _train_epoch(run: Run, data: Examples, asked: Sequence[str]) -> bool:
    """Train on what is left of the present epoch; return whether it was not stopped before."""
    plan, at, session = run.plan, run.at, run.session
    watched = (LOSS, *(name for name in SCALE if session.info.having(name) is not None), *asked)
    batches = data.epoch(
        plan.batch,
        number=at.epoch,
        seed=plan.seed if plan.shuffle else None,
        start=at.batch,
        drop_last=session.fixed_batch,
    )
    updated, steps, spoilt = at.step, 0, 0
    for feeds, last in _with_last(batches, looks_ahead=session.info.accumulate > 1):
        at.note(_step(session, at, feeds, watched, last=last), asked)
        at.batch, at.step = at.batch + 1, at.step + 1
        steps, spoilt = steps + 1, spoilt + _is_spoilt(session, at, feeds)
        run.call("on_step")
        if session.waiting:
            continue
        if run.ends():
            _save(run)
            return False
        if plan.every and at.step // plan.every > updated // plan.every:
            _save(run)
        updated = at.step
    if spoilt and spoilt == steps:
        raise DivergenceError(
            "every step of the epoch was skipped: all batches hold numbers that are not finite",
            where=f"epoch {at.epoch + 1}",
            remedy=_LEAVE_OUT,
        )
    if not at.batch:
        raise DataError("the data hold no examples", where=data.where, found="an empty epoch")
    return True


def _end_epoch(run: Run, held_out: Examples | None, metrics: Metrics) -> None:
    """Evaluate, and save where the next epoch begins."""
    at = run.at
    if held_out is not None:
        at.evaluation = evaluate(run.session, held_out, run.plan.batch, metrics)
        run.call("on_evaluation")
    at.epoch, at.batch = at.epoch + 1, 0
    run.call("on_epoch")
    _save(run)


def _with_last(batches: Iterator[Batch], *, looks_ahead: bool) -> Iterator[tuple[Batch, bool]]:
    """Yield batches, each with whether it is known to be the last one.

    Args:
        batches: What to read.
        looks_ahead: Read one more before each is yielded, without which no last one is known.
    """
    if not looks_ahead:
        yield from ((batch, False) for batch in batches)
        return
    for batch, following in pairwise(chain(batches, [None])):
        if batch is not None:
            yield batch, following is None


def _step(
    session: TrainingSession,
    at: Progress,
    feeds: Batch,
    fetches: Sequence[str],
    *,
    last: bool,
) -> Mapping[str, Any]:
    """Run the next step; the last one of an epoch applies what is accumulated.

    Raises:
        LossScaleError: The loss scale has collapsed; it names the batch.
    """
    try:
        return session.run(feeds, fetches, apply=last)
    except LossScaleError as error:
        raise error.at(at.place(1)) from error


def _save(run: Run) -> None:
    """Write the plan's checkpoint, of weights that are numbers."""
    _check_weights(run.session, run.at)
    if run.plan.checkpoint is not None:
        run.save(run.plan.checkpoint)


def _is_spoilt(session: TrainingSession, at: Progress, feeds: Batch) -> bool:
    """Return whether a batch holds numbers that are not finite, and its step was skipped for them.

    Raises:
        DivergenceError: The loss is not finite, and no loss scale skips such a step.
    """
    if math.isfinite(at.loss):
        return False
    fed = non_finite(feeds)
    if "grads_finite" in session.info.fetches:
        return bool(fed)
    if fed:
        raise DivergenceError(
            "the loss is not finite, and the batch holds numbers that are not",
            where=at.place(),
            found=", ".join(f"{name}: {count} not finite" for name, count in fed.items()),
            remedy=_LEAVE_OUT,
        )
    raise DivergenceError(
        "the loss is not finite",
        where=at.place(),
        found=f"{at.loss}; {cause}" if (cause := session.cause(feeds)) else at.loss,
        remedy=f"{_remedy(session)}, and resume from a checkpoint",
    )


def _check_weights(session: TrainingSession, at: Progress) -> None:
    """Refuse weights that a gradient of NaN has spoilt, which the loss tells one step later."""
    for state in session.info.states:
        if state.role == "variable" and np.isnan(session.read_state(state.name)).any():
            raise DivergenceError(
                "a weight has become NaN",
                where=f"step {at.step}",
                found=state.name,
                remedy="amp-rewrite doctor finds the first value that is not finite; "
                f"{_remedy(session)}, and resume from a checkpoint",
            )


def _remedy(session: TrainingSession) -> str:
    """Return what to do against weights that become NaN: first let a loss scale check."""
    if session.info.loss_scale is not None and "grads_finite" not in session.info.fetches:
        return "use a loss scale that is checked, such as 'dynamic'"
    return "lower the learning rate or clip the gradients"
