"""Evaluate a session on held-out examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from amp_rewrite.errors import DataError, FeedError, FetchError
from amp_rewrite.metrics.accuracy import Accuracy
from amp_rewrite.metrics.metric import Metric, number_of_examples
from amp_rewrite.trainer.data.examples import Batch, Examples
from amp_rewrite.trainer.session.training_session import TrainingSession
from amp_rewrite.trainer.step.step_info import LOSS


def evaluate(
    session: TrainingSession,
    data: Examples,
    batch: int,
    metrics: Sequence[Metric] | None = None,
    *,
    averaged: bool = False,
) -> dict[str, float]:
    """Return the mean loss over examples in inference mode, and metrics.

    If the model has a batch of a fixed size, examples that do not fill one are left out.

    Args:
        session: The session; its state does not change.
        data: Held-out examples.
        batch: How many to run at once.
        metrics: What to measure; None is the accuracy if the step says which values are the logits
            and the labels.
        averaged: Use the averages that the step keeps in place of its weights.

    Returns:
        "eval_loss", and "eval_<name>" for each metric.

    Raises:
        FetchError: The step has no loss.
        FeedError: The data do not fit the inputs.
        DataError: They do not fill one batch of a fixed size.
        OptionError: A metric does not know what to compare.
    """
    check_fills(data, batch, session)
    batches = data.epoch(batch, drop_last=session.fixed_batch)
    return measure(session, batches, metrics, averaged=averaged)


def measure(
    session: TrainingSession,
    batches: Iterable[Batch],
    metrics: Sequence[Metric] | None,
    *,
    averaged: bool = False,
) -> dict[str, float]:
    """Return the mean loss over batches, and metrics; see `evaluate`."""
    targets = session.info.targets or {}
    if LOSS not in session.info.fetches:
        raise FetchError("the step has no loss to evaluate")
    if metrics is None:
        metrics = [Accuracy()] if {"logits", "labels"} <= targets.keys() else []
    needed = [name for metric in metrics for name in metric.begin(targets)]
    fetches = list(dict.fromkeys([LOSS, *needed]))
    loss, examples = 0.0, 0
    for feeds in batches:
        found = session.evaluate(feeds, fetches, averaged=averaged)
        count = number_of_examples(feeds)
        loss, examples = loss + float(found[LOSS]) * count, examples + count
        for metric in metrics:
            metric.update(found, feeds)
    if not examples:
        raise DataError("the held-out data hold no examples")
    return {"eval_loss": loss / examples} | {f"eval_{m.name}": m.result() for m in metrics}


def rehearse(
    session: TrainingSession,
    data: Examples,
    batch: int,
    metrics: Sequence[Metric] | None,
    *,
    averaged: bool = False,
) -> tuple[str, ...]:
    """Evaluate one batch, so that data that do not fit are found before training.

    Returns:
        The names of what evaluations find.

    Raises:
        DataError: The data can be read only once.
        AmpError: What `evaluate` raises.
    """
    if data.once:
        raise DataError(
            "the held-out data can be read only once, and are read for every evaluation",
            where=data.where,
            remedy="pass a list of batches, or a function that returns a new iterator each time",
        )
    check_fills(data, batch, session)
    first = next(iter(data.epoch(batch)), None)
    if first is None:
        raise DataError("the held-out data hold no examples", where=data.where)
    try:
        return tuple(measure(session, [first], metrics, averaged=averaged))
    except FeedError as error:
        raise FeedError(
            error.what,
            where=data.where or "held-out data",
            found=error.found,
            expected=error.expected,
            remedy=error.remedy,
        ) from error


def check_fills(data: Examples, batch: int, session: TrainingSession) -> None:
    """Refuse data that do not fill one batch, if the model has a batch of a fixed size.

    Raises:
        DataError: There are fewer examples.
    """
    if data.steps(batch, drop_last=session.fixed_batch) == 0:
        raise DataError(
            "too few examples for a batch",
            where=data.where,
            found=data.size,
            expected=f"at least {batch}, for the model has a batch of a fixed size",
        )


def summary(found: Mapping[str, float]) -> str:
    """Return an evaluation as text, for example "loss 0.0713, accuracy 98.33%"."""
    return ", ".join(
        f"{name.removeprefix('eval_').replace('_', ' ')} {_shown(name, value)}"
        for name, value in found.items()
    )


def _shown(name: str, value: float) -> str:
    return f"{value:.2%}" if name.endswith("accuracy") else f"{value:.4g}"
