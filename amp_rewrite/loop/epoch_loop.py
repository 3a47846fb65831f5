"""Epochs over examples: train, evaluate, save, and resume."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise

import numpy as np

from amp_rewrite.errors import (
    DataError,
    DivergenceError,
    FeedError,
    LossScaleError,
    OptionError,
    placed,
)
from amp_rewrite.loop.evaluation import Metrics, check_fills, evaluate, rehearse
from amp_rewrite.loop.plan_and_progress import (
    SCALE,
    Plan,
    Progress,
    check_begin,
    read_back,
    rest_of_epoch,
)
from amp_rewrite.loop.run_with_callbacks import Callback, Run
from amp_rewrite.training.data.as_examples import Batch, Examples
from amp_rewrite.training.session.feeds import non_finite
from amp_rewrite.training.session.training_session import TrainingSession
from amp_rewrite.training.step.step_info import LOSS

_SKIPS = 20
"""Skipped steps in a row at the lowest loss scale that end training by default."""


def resume(session: TrainingSession, plan: Plan) -> Progress:
    """Restore the checkpoint of a plan; return its progress."""
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
    """Train for the epochs of a plan, from `progress` on; see `Trainer.train`.

    Data in memory, and the first held-out batch, are checked before the first step. If the model
    has a fixed batch size, the last examples of an epoch that do not fill a batch are omitted.
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
    """Return the names of the results of evaluations; try the first held-out batch."""
    if held_out is None:
        if metrics is not None:
            raise OptionError(
                "metrics need held-out data", found="metrics without eval", remedy="eval=DATA"
            )
        return ()
    if held_out.arrays is not None:
        _check_examples(session, held_out)
    return rehearse(session, held_out, plan.batch, metrics)


def _check_data(session: TrainingSession, data: Examples, plan: Plan, progress: Progress) -> None:
    """Refuse unfit data before the first step."""
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
    """Train on the rest of the present epoch; return whether it was completed."""
    plan, at, session = run.plan, run.at, run.session
    watched = (LOSS, *(name for name in SCALE if session.info.having(name) is not None), *asked)
    batches = rest_of_epoch(data, plan, at, drop_last=session.fixed_batch)
    updated = at.step
    for feeds, last in _with_last(batches, looks_ahead=session.info.accumulate > 1):
        try:
            at.note(session.run(feeds, watched, apply=last), asked)
        except LossScaleError as error:
            raise error.at(at.place(1)) from error
        at.batch, at.step = at.batch + 1, at.step + 1
        _check_loss(session, at, feeds)
        run.call("on_step")
        if session.waiting:
            continue
        if run.ends():
            _save(run)
            return False
        if plan.every and at.step // plan.every > updated // plan.every:
            _save(run)
        updated = at.step
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
    """Yield batches, each with whether it is the last one, which only looking ahead finds."""
    if not looks_ahead:
        yield from ((batch, False) for batch in batches)
        return
    for batch, following in pairwise(chain(batches, [None])):
        if batch is not None:
            yield batch, following is None


def _save(run: Run) -> None:
    """Write the plan's checkpoint, if all weights are finite."""
    _check_weights(run.session, run.at)
    if run.plan.checkpoint is not None:
        run.save(run.plan.checkpoint)


def _check_loss(session: TrainingSession, at: Progress, feeds: Batch) -> None:
    """Refuse a loss that is not finite, unless a loss scale skips the step."""
    if math.isfinite(at.loss) or "grads_finite" in session.info.fetches:
        return
    fed = non_finite(feeds)
    if fed:
        raise DivergenceError(
            "the loss is not finite, and the batch holds numbers that are not",
            where=at.place(),
            found=", ".join(f"{name}: {count} not finite" for name, count in fed.items()),
            remedy="leave such examples out: np.argwhere(~np.isfinite(x)) finds them",
        )
    raise DivergenceError(
        "the loss is not finite",
        where=at.place(),
        found=f"{at.loss}; {cause}" if (cause := session.cause(feeds)) else at.loss,
        remedy=f"{_remedy(session)}, and resume from a checkpoint",
    )


def _check_weights(session: TrainingSession, at: Progress) -> None:
    """Refuse weights that are NaN; the loss would show them one step later."""
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
    """Return a remedy for weights that become NaN."""
    if session.info.loss_scale is not None and "grads_finite" not in session.info.fetches:
        return "use a loss scale that is checked, such as 'dynamic'"
    return "lower the learning rate or clip the gradients"
