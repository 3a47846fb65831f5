"""Evaluate a session on held-out examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from amp_rewrite.errors import DataError, FeedError, FetchError, placed
from amp_rewrite.loop.metrics.class_metrics import Accuracy
from amp_rewrite.loop.metrics.metric import LossWeight, Metric, as_number, ratio
from amp_rewrite.loop.plan_and_progress import scalar_loss
from amp_rewrite.training.data.examples import Batch, Examples
from amp_rewrite.training.session.training_session import TrainingSession
from amp_rewrite.training.step.step_arguments import fetched_names
from amp_rewrite.training.step.step_info import LABELS, LOGITS, LOSS


def evaluate(
    session: TrainingSession,
    data: Examples,
    batch: int,
    metrics: Sequence[Metric] | None = None,
    *,
    averaged: bool = False,
) -> dict[str, float]:
    """Return the mean loss in inference mode, and metrics.

    The mean is over what counts, whatever the size of the batches: over labels that are not
    ignored, weighted as their classes are; over examples if the step does not know its labels. If
    the model has a batch of a fixed size, examples that do not fill one are left out.

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
    """Return the mean loss over batches, and metrics; see `evaluate`.

    Raises:
        FetchError: The step has no loss.
        StepError: The loss is not a scalar.
        DataError: There are no batches.
        OptionError: A metric does not know what to compare, or finds something else.
    """
    targets = session.info.targets or {}
    if LOSS not in session.info.fetches:
        raise FetchError("the step has no loss to evaluate")
    if metrics is None:
        metrics = [Accuracy()] if {LOGITS, LABELS} <= targets.keys() else []
    weight = LossWeight(targets)
    needed = [name for metric in metrics for name in fetched_names(metric.begin(targets) or ())]
    fetches = list(dict.fromkeys([LOSS, *weight.needed, *needed]))
    total, weights, seen = 0.0, 0.0, False
    for feeds in batches:
        seen = True
        results = session.evaluate(feeds, fetches, averaged=averaged)
        counts = weight.of(results, feeds)
        if counts:  # the loss of labels that are all ignored may be NaN
            total, weights = total + scalar_loss(results[LOSS]) * counts, weights + counts
        for metric in metrics:
            metric.update(results, feeds)
    if not seen:
        raise DataError("the held-out data hold no examples")
    measured = {f"eval_{m.name}": as_number(m.result(), m.name) for m in metrics}
    return {"eval_loss": ratio(total, weights), **measured}


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
        raise placed(error, data.where or "held-out data") from error


def check_fills(data: Examples, batch: int, session: TrainingSession) -> None:
    """Refuse data without an example, and those that do not fill a batch of a fixed size."""
    if data.steps(batch, drop_last=session.fixed_batch) != 0:
        return
    if not data.size:
        raise DataError("the data hold no examples", where=data.where)
    fixed = f"at least {batch}, for the model has a batch of a fixed size"
    raise DataError(
        "too few examples for a batch",
        where=data.where,
        found=data.size,
        expected=fixed if session.fixed_batch else "at least one for each shard",
    )


def summary(results: Mapping[str, float]) -> str:
    """Return an evaluation as text, for example "loss 0.0713, accuracy 98.33%"."""
    return ", ".join(
        f"{name.removeprefix('eval_').replace('_', ' ')} {_score_text(name, value)}"
        for name, value in results.items()
    )


def _score_text(name: str, value: float) -> str:
    return f"{value:.2%}" if name.endswith("accuracy") else f"{value:.4g}"
