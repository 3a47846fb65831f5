"""Epochs over examples: train, evaluate, save, and go on where training stopped."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np

from amp_rewrite.errors import DataError, DivergenceError, LossScaleError, OptionError
from amp_rewrite.loop.checks_before import check_before, in_memory
from amp_rewrite.loop.evaluation import evaluate, rehearse
from amp_rewrite.loop.metrics.metric import Metric, number_of_examples
from amp_rewrite.loop.plan_and_progress import SCALE, Plan, Progress, check_begin, is_due, read_back
from amp_rewrite.loop.run_with_callbacks import Callback, Run
from amp_rewrite.training.data.examples import Examples
from amp_rewrite.training.data.prefetch import prefetched, with_last
from amp_rewrite.training.graph.training_graph import TRAINED_ROLES
from amp_rewrite.training.session.input_checks import non_finite
from amp_rewrite.training.session.training_session import TrainingSession
from amp_rewrite.training.step.step_info import LOSS

_SKIPS = 20
"""Skipped steps in a row at the lowest loss scale that end training, if the scale says nothing."""
_AHEAD = 2
"""Batches that are read ahead of data that are not in memory."""


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
    metrics: Sequence[Metric] | None = None,
    callbacks: Sequence[Callback] = (),
    progress: Progress | None = None,
) -> Run:
    """Train for the epochs of a plan.

    Args:
        session: The session.
        data: The examples.
        plan: How to go through them.
        held_out: What to evaluate on, or None.
        metrics: What to measure there besides the loss; None is the accuracy if it is known.
        callbacks: What to call on the way.
        progress: Where to begin, as `resume` returned it.

    Returns:
        The run: where training ended, and why if that is before its plan. If the model has a batch
        of a fixed size, the examples of an epoch that do not fill one are left out. If gradients
        of several batches make an update, the last one of an epoch is of those that are left.

    Raises:
        CheckpointError: Training is to go on behind the last batch of the data, or not with the
            callbacks' states.
        DivergenceError: A loss is not finite, a weight is NaN at the end of an epoch, or all of an
            epoch was skipped because its batches are not finite.
        LossScaleError: The loss scale has collapsed.
        FeedError: The data do not fit the inputs of the step; held-out data are tried first.
        DataError: They do not fill one batch of a fixed size; or one of them names a class or a row
            that does not exist, holds numbers that are not finite and refused, or would be alone in
            a batch that is normalized. Data in memory are looked through before the first step,
            others when their batch comes.
        SaveError: A checkpoint cannot be written.
        FetchError: The step cannot compute what a callback asks for.
        OptionError: An option could only be left out, or the step keeps no averages.
    """
    epochs = plan.epochs - (0 if progress is None else progress.epoch)
    check_before(session, data, plan, held_out, metrics, epochs=epochs)
    measures: Sequence[str] = ()
    if held_out is not None:
        measures = rehearse(session, held_out, plan.batch, metrics, averaged=plan.averaged)
    if progress is not None:
        check_begin(
            progress, data.steps(plan.batch, drop_last=session.fixed_batch), plan.checkpoint
        )
    run = Run(session, plan, callbacks, progress, measures)
    run.call("check")
    asked = run.fetches()
    limit = session.skip_limit
    session.limit_skips(limit or _SKIPS)
    run.call("on_begin")
    try:
        while run.at.epoch < plan.epochs and not run.ends():
            _train_epoch(run, data, held_out, metrics, asked)
    except BaseException as error:
        run.failed = error
        raise
    finally:
        session.limit_skips(limit)
        run.call("on_end")
    return run


def _train_epoch(
    run: Run,
    data: Examples,
    held_out: Examples | None,
    metrics: Sequence[Metric] | None,
    asked: Sequence[str],
) -> None:
    """Train on what is left of the present epoch, or until the run is stopped."""
    plan, at, session = run.plan, run.at, run.session
    watched = (LOSS, *(name for name in SCALE if session.info.having(name) is not None), *asked)
    batches = data.epoch(
        plan.batch,
        number=at.epoch,
        seed=plan.seed if plan.shuffle else None,
        start=at.batch,
        drop_last=session.fixed_batch,
    )
    updated = at.step
    spoilt = _Spoilt(at.place(1))
    with closing(prefetched(batches, _batches_ahead(plan, data))) as ready:
        for feeds, last in with_last(ready, looks_ahead=session.info.accumulate > 1):
            at.note(_step(session, at, feeds, watched, last=last), asked)
            at.examples, at.waiting = number_of_examples(feeds), session.waiting
            at.batch, at.step = at.batch + 1, at.step + 1
            _check_finite(session, at, feeds)
            spoilt.note(at.loss, feeds)
            run.call("on_step")
            if at.waiting:
                continue
            if _ends_after_update(run, updated, held_out, metrics):
                return
            updated = at.step
    spoilt.check()
    if not at.batch:
        raise DataError("the data hold no examples", where=data.where, found="an empty epoch")
    if not plan.evaluate_every:
        _evaluate(run, held_out, metrics)
    at.epoch, at.batch = at.epoch + 1, 0
    run.call("on_epoch")
    _save(run)


def _step(
    session: TrainingSession,
    at: Progress,
    feeds: Mapping[str, Any],
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


def _ends_after_update(
    run: Run, updated: int, held_out: Examples | None, metrics: Sequence[Metric] | None
) -> bool:
    """Do what is due after an update; return whether the run ends with it.

    In the middle of an update nothing is: evaluations would find what they found before it, and
    what is saved then could not be gone on with by another number of shards.
    """
    plan, step = run.plan, run.at.step
    if is_due(plan.evaluate_every, updated, step):
        _evaluate(run, held_out, metrics)
    if run.ends():
        _save(run)
        return True
    if is_due(plan.every, updated, step):
        _save(run)
    return False


def _evaluate(run: Run, held_out: Examples | None, metrics: Sequence[Metric] | None) -> None:
    if held_out is not None:
        run.at.evaluation = evaluate(
            run.session, held_out, run.plan.batch, metrics, averaged=run.plan.averaged
        )
        run.call("on_evaluation")


def _save(run: Run) -> None:
    """Write the plan's checkpoint, of weights that are numbers."""
    _check_weights(run.session, run.at)
    if run.plan.checkpoint is not None:
        run.save(run.plan.checkpoint)


def _batches_ahead(plan: Plan, data: Examples) -> int:
    if plan.ahead is not None:
        return plan.ahead
    return 0 if in_memory(data) else _AHEAD


def _check_finite(session: TrainingSession, at: Progress, feeds: Mapping[str, Any]) -> None:
    if math.isfinite(at.loss) or session.info.having("loss_scale") is not None:
        return
    fed = non_finite(feeds)
    if fed:
        raise DivergenceError(
            "the loss is not finite, and the batch holds numbers that are not",
            where=at.place(),
            found=", ".join(f"{name}: {count} not finite" for name, count in fed.items()),
            remedy="leave such examples out; --non-finite refuse finds the first one",
        )
    raise DivergenceError(
        "the loss is not finite",
        where=at.place(),
        found=f"{at.loss}; {cause}" if (cause := session.cause(feeds)) else at.loss,
        remedy="lower the learning rate or clip the gradients, and resume from a checkpoint",
    )


class _Spoilt:
    """Whether numbers that are not finite spoil all batches of an epoch, so that it trains nothing.

    One such batch is skipped, where a loss scale skips what is not finite, as an overflow is.
    """

    def __init__(self, place: str) -> None:
        self._place, self._steps, self._spoilt = place, 0, 0
        self._found: dict[str, int] = {}

    def note(self, loss: float, feeds: Mapping[str, Any]) -> None:
        """Take a step into account."""
        self._steps += 1
        fed = {} if math.isfinite(loss) else non_finite(feeds)
        self._spoilt += bool(fed)
        for name, count in fed.items():
            self._found[name] = self._found.get(name, 0) + count

    def check(self) -> None:
        """Refuse an epoch without a step that could be made.

        Raises:
            DivergenceError: There was none.
        """
        if self._spoilt and self._spoilt == self._steps:
            raise DivergenceError(
                "every step of the epoch was skipped: all batches hold numbers that are not finite",
                where=f"from {self._place} on",
                found=", ".join(f"{n}: {count} not finite" for n, count in self._found.items()),
                remedy="leave such examples out; --non-finite refuse finds the first one",
            )


def _check_weights(session: TrainingSession, at: Progress) -> None:
    """Refuse weights that a gradient of NaN has spoilt, which the loss tells one step later."""
    for state in session.info.states:
        if state.role in TRAINED_ROLES and np.isnan(session.read_state(state.name)).any():
            raise DivergenceError(
                "a weight has become NaN",
                where=f"step {at.step}",
                found=state.name,
                remedy="amp-rewrite doctor finds the first value that is not finite; lower the "
                "learning rate or clip the gradients, and resume from a checkpoint",
            )
