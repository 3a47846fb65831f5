"""Evaluate a session on held-out data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from amp_rewrite.errors import DataError, FeedError, FetchError
from amp_rewrite.train.step.step_info import LOSS

if TYPE_CHECKING:
    from amp_rewrite.train.data.data_set import DataSet
    from amp_rewrite.train.session.training_session import TrainingSession

Array = np.ndarray[Any, Any]


def evaluate(session: TrainingSession, data: DataSet, batch: int) -> dict[str, float]:
    """Return the mean loss over a data set in inference mode, and the accuracy if it is known.

    If the model has a batch of a fixed size, examples that do not fill one are left out. The
    accuracy is known if the step says which values are the logits and the labels.

    Args:
        session: The session; its state does not change.
        data: Held-out examples.
        batch: How many to run at once.

    Returns:
        "eval_loss", and "eval_accuracy" if it is known.

    Raises:
        FetchError: The step has no loss.
        FeedError: The data do not fit the inputs.
        DataError: They do not fill one batch of a fixed size.
    """
    targets = session.info.targets or {}
    logits, labels = targets.get("logits"), targets.get("labels")
    if LOSS not in session.info.fetches:
        raise FetchError("the step has no loss to evaluate")
    check_fills(data, batch, session)
    fetches = [LOSS] if logits is None else [LOSS, logits]
    loss, examples, correct, answers = 0.0, 0, 0, 0
    for feeds in data.batches(batch, drop_last=session.fixed_batch):
        found = session.evaluate(feeds, fetches)
        count = max((len(a) for a in feeds.values() if a.ndim), default=1)
        loss, examples = loss + float(found[LOSS]) * count, examples + count
        if logits is not None and labels in feeds:
            right = hits(found[logits], feeds[labels])
            correct, answers = correct + int(right.sum()), answers + right.size
    result = {"eval_loss": loss / examples}
    return result | ({"eval_accuracy": correct / answers} if answers else {})


def rehearse(session: TrainingSession, data: DataSet, batch: int) -> None:
    """Evaluate one batch, so that data that do not fit are found before training.

    Raises:
        AmpError: What `evaluate` raises.
    """
    check_fills(data, batch, session)
    first = next(data.batches(batch))
    try:
        evaluate(session, data.of(first), batch)
    except FeedError as error:
        raise FeedError(
            error.what,
            where=data.where or "held-out data",
            found=error.found,
            expected=error.expected,
            remedy=error.remedy,
        ) from error


def check_fills(data: DataSet, batch: int, session: TrainingSession) -> None:
    """Refuse data that do not fill one batch, if the model has a batch of a fixed size.

    Raises:
        DataError: There are fewer examples.
    """
    if not data.steps(batch, drop_last=session.fixed_batch):
        raise DataError(
            "too few examples for a batch",
            where=data.where,
            found=data.size,
            expected=f"at least {batch}, for the model has a batch of a fixed size",
        )


def hits(logits: Array, labels: Array) -> Array:
    """Return where the largest logit is that of the label.

    Args:
        logits: (N, ..., C) or (N, C, ...).
        labels: Class numbers (N, ...), or one-hot of the same shape as `logits`.

    Returns:
        bool, one per label.
    """
    if labels.shape == logits.shape and np.issubdtype(labels.dtype, np.floating):
        return logits.argmax(-1) == labels.argmax(-1)
    axis = -1 if logits.shape[:-1] == labels.shape else 1
    return logits.argmax(axis) == labels


def summary(found: Mapping[str, float]) -> str:
    """Return an evaluation as text, for example "loss 0.0713, accuracy 98.3 %"."""
    text = f"loss {found['eval_loss']:.4g}"
    if "eval_accuracy" in found:
        text += f", accuracy {found['eval_accuracy']:.2%}"
    return text
