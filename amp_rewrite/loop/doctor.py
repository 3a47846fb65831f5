"""Find out why training fails: train until something is not finite, then check every value."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from amp_rewrite.base import arguments
from amp_rewrite.errors import DataError, LossScaleError
from amp_rewrite.loop.evaluation import check_fills
from amp_rewrite.loop.plan_and_progress import Plan, Progress, rest_of_epoch
from amp_rewrite.loop.trainer import OPTIONS, Trainer
from amp_rewrite.training.data.as_examples import Batch, as_examples
from amp_rewrite.training.diagnosis.diagnosis import Diagnosis
from amp_rewrite.training.optimizers.gradient_accumulation import ACCUMULATED
from amp_rewrite.training.session.training_session import TrainingSession
from amp_rewrite.training.step.step_info import LOSS

_FINITE = "grads_finite"


def doctor(
    step: Any,
    data: Any,
    *,
    batch: int = 32,
    steps: int = 20,
    skips: int = 5,
    checkpoint: str | os.PathLike[str] | None = None,
    seed: int = 0,
    shuffle: bool = True,
    session: Mapping[str, Any] | None = None,
) -> Diagnosis:
    """Train until a loss is not finite, or too many updates in a row are skipped; find the cause.

    With the arguments of `train`, the batches are those of `train`, in the same order.

    Args:
        step: A TrainOp, a step model or its file, or an open `TrainingSession`, which is trained.
        data: See `Trainer.train`.
        batch: See `Trainer.train`.
        steps: The most steps, in the first epoch or that of the checkpoint. If all are finite, the
            last one is examined.
        skips: The number of skipped updates in a row that are too many.
        checkpoint: The checkpoint to begin with; None is the beginning.
        seed: See `Trainer.train`.
        shuffle: See `Trainer.train`.
        session: Options of `TrainingSession`: providers, precision, ... 16-bit types are emulated
            unless there are providers, or `emulate` says otherwise.

    Returns:
        The first value that is not finite, its batch, and the underflow of gradients.

    Raises:
        OptionError: An argument is impossible.
        DataError: The data do not fill a batch.
        AmpError: See `Trainer.train`.
    """
    plan = Plan(1, batch, seed, shuffle)
    steps = arguments.integer("steps", steps, low=1)
    skips = arguments.integer("skips", skips, low=1)
    options = dict(arguments.mapping("session", session or {}, what=OPTIONS))
    if not isinstance(step, TrainingSession):
        options.setdefault("emulate", "providers" not in options)
    with Trainer(step, **options) as trainer:
        at = _start(trainer.session, checkpoint)
        return _examine_run(trainer.session, data, plan, at, steps=steps, skips=skips)


def _start(session: TrainingSession, checkpoint: str | os.PathLike[str] | None) -> Progress:
    """Restore a checkpoint; return its progress."""
    if checkpoint is None:
        return Progress()
    kept = session.restore(checkpoint)
    epoch, position, step = (kept.get(name, 0) for name in ("epoch", "position", "step"))
    return Progress(int(epoch), int(position), int(step))


def _examine_run(
    session: TrainingSession, data: Any, plan: Plan, at: Progress, *, steps: int, skips: int
) -> Diagnosis:
    """Train, and diagnose the first step that is not finite, or the last one."""
    watched = tuple(n for n in (LOSS, _FINITE, ACCUMULATED) if n in session.info.fetches)
    update: deque[Batch] = deque(maxlen=session.info.accumulate)
    skipped = 0
    examples = as_examples(data, session.info.inputs)
    check_fills(examples, plan.batch, session)
    batches = rest_of_epoch(examples, plan, at, drop_last=session.fixed_batch)
    for feeds in islice(batches, steps):
        update.append(feeds)
        at.batch, at.step = at.batch + 1, at.step + 1
        try:
            results = session.run(feeds, watched)
        except LossScaleError as error:
            return _diagnose_update(session, update, at, error.what)
        at.note(results)
        if not results.get(ACCUMULATED, 0):
            skipped = 0 if results.get(_FINITE, True) else skipped + 1
        if skipped >= skips:
            return _diagnose_update(session, update, at, f"{skipped} updates in a row were skipped")
        if not math.isfinite(at.loss) or not (_FINITE in watched or _is_sound(session)):
            break
    if not update:
        raise DataError("the data hold no batch", remedy="pass at least one")
    return _diagnose_update(session, [update[-1]], at, None)


def _is_sound(session: TrainingSession) -> bool:
    """Return whether all states are finite, where an unchecked update shows first."""
    arrays = session.state_dict().values()
    return all(np.isfinite(array.astype(np.float32)).all() for array in arrays)


def _diagnose_update(
    session: TrainingSession, update: Sequence[Batch], at: Progress, skipped: str | None
) -> Diagnosis:
    """Diagnose the batches of an update until one is not finite; `skipped` is the reason."""
    later = len(update)
    diagnosis = None
    while diagnosis is None or (diagnosis.finite and later):
        later -= 1
        diagnosis = session.diagnose(update[-1 - later], last=True)
    return replace(
        diagnosis,
        step=at.step - later,
        epoch=at.epoch + 1,
        batch=at.batch - later,
        loss=at.loss,
        skipped=skipped,
    )
