"""Evaluate a session on held-out examples."""

from __future__ import annotations

from collections.abc import Mapping

from amp_rewrite.errors import DataError, FeedError, FetchError, placed
from amp_rewrite.loop.metrics import Compared, Metrics, loss_weight, measures_of, ratio
from amp_rewrite.loop.plan_and_progress import scalar_loss
from amp_rewrite.training.data.examples import Batch, Examples
from amp_rewrite.training.session.training_session import TrainingSession
from amp_rewrite.training.step.step_info import DENOMINATOR, LOSS


def evaluate(
    session: TrainingSession, data: Examples, batch: int, metrics: Metrics = None
) -> dict[str, float]:
    """Return the mean loss in inference mode, and metrics, as `Trainer.evaluate` does.

    Batches count by `loss_weight`. If the model has a fixed batch size, the last examples that do
    not fill a batch are omitted.
    """
    check_fills(data, batch, session)
    evaluation = _Evaluation(session, metrics)
    for feeds in data.epoch(batch, drop_last=session.fixed_batch):
        evaluation.take(feeds)
    return evaluation.result()


def rehearse(
    session: TrainingSession, data: Examples, batch: int, metrics: Metrics
) -> tuple[str, ...]:
    """Evaluate one batch, to find unfit data before training; return the names of the results."""
    if data.once:
        raise DataError(
            "the held-out data can be read only once, and are read for every evaluation",
            where=data.where,
            remedy="pass a list of batches, or a function that returns a new iterator each time",
        )
    check_fills(data, batch, session)
    evaluation = _Evaluation(session, metrics)
    first = next(iter(data.epoch(batch)), None)
    if first is None:
        raise DataError("the held-out data hold no examples", where=data.where)
    try:
        evaluation.take(first)
    except FeedError as error:
        raise placed(error, data.where or "held-out data") from error
    return evaluation.names


class _Evaluation:
    """The mean loss and the metrics of the batches that it takes."""

    def __init__(self, session: TrainingSession, metrics: Metrics) -> None:
        self._targets = session.info.targets or {}
        if LOSS not in session.info.fetches:
            raise FetchError("the step has no loss to evaluate")
        self._session = session
        self._measures = measures_of(metrics, self._targets)
        self._compared = Compared(self._targets) if self._measures else None
        outputs = None if self._compared is None else self._compared.outputs
        needed = (LOSS, self._targets.get(DENOMINATOR), outputs)
        self._fetches = list(dict.fromkeys(name for name in needed if name is not None))
        self._total = self._weights = 0.0
        self._seen = False

    @property
    def names(self) -> tuple[str, ...]:
        return ("eval_loss", *(f"eval_{measure.name}" for measure in self._measures))

    def take(self, feeds: Batch) -> None:
        self._seen = True
        found = self._session.evaluate(feeds, self._fetches)
        loss, weight = scalar_loss(found[LOSS]), loss_weight(self._targets, found, feeds)
        if weight:  # the loss of labels that are all ignored may be NaN
            self._total, self._weights = self._total + loss * weight, self._weights + weight
        if self._compared is not None:
            labels, outputs = self._compared.of(found, feeds)
            for measure in self._measures:
                measure.take(labels, outputs)

    def result(self) -> dict[str, float]:
        if not self._seen:
            raise DataError("the held-out data hold no examples")
        numbers = (measure.result() for measure in self._measures)
        return dict(zip(self.names, (ratio(self._total, self._weights), *numbers), strict=True))


def check_fills(data: Examples, batch: int, session: TrainingSession) -> None:
    """Refuse data without an example, or without a batch of the fixed size."""
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
