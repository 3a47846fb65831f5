"""What is refused before the first step: options without effect, data that cannot be trained on."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from amp_rewrite.errors import DataError, FeedError, OptionError, placed
from amp_rewrite.loop.evaluation import check_fills
from amp_rewrite.loop.metrics.metric import Metric
from amp_rewrite.loop.plan_and_progress import Plan
from amp_rewrite.training.data.data_set import DataSet
from amp_rewrite.training.data.examples import Examples
from amp_rewrite.training.session.training_session import TrainingSession


def check_before(
    session: TrainingSession,
    data: Examples,
    plan: Plan,
    held_out: Examples | None,
    metrics: Sequence[Metric] | None,
    *,
    epochs: int,
) -> None:
    """Refuse what would be found, or left out, only after steps that were trained in vain.

    Raises:
        OptionError: An option could only be left out.
        DataError: The data cannot be read as often as the plan says, do not fill one batch of a
            fixed size, or hold examples that a step would refuse.
    """
    _check_evaluates(plan, held_out, metrics)
    _check_lasts(data, epochs)
    check_fills(data, plan.batch, session)
    _check_data(session, data, _sizes(session, data, plan.batch))
    if held_out is not None:
        _check_data(session, held_out)


def _check_evaluates(
    plan: Plan, held_out: Examples | None, metrics: Sequence[Metric] | None
) -> None:
    """Refuse options of evaluations that there are none of."""
    often = f"every {plan.evaluate_every} steps"
    options = {"metrics": metrics, often: plan.evaluate_every, "averaged": plan.averaged}
    if held_out is None and any(options.values()):
        raise OptionError(
            "there are no held-out data to evaluate",
            found=", ".join(name for name, value in options.items() if value),
            remedy="name them, or leave out how they are evaluated",
        )


def _check_lasts(data: Examples, epochs: int) -> None:
    """Refuse several epochs over data that can be read only once."""
    if data.once and epochs > 1:
        raise DataError(
            "the data can be read only once",
            where=data.where,
            found=f"{epochs} epochs",
            remedy="pass a function that returns a new iterator for each epoch",
        )


def _check_data(session: TrainingSession, data: Examples, batches: Collection[int] = ()) -> None:
    """Find examples in memory that a step would refuse before the first step."""
    arrays = data.arrays if in_memory(data) else None
    try:
        session.check_examples(arrays or {}, batches)
    except FeedError as error:
        where = " ".join(str(w) for w in (data.where, error.where) if w is not None) or None
        raise placed(error, where, DataError) from error


def _sizes(session: TrainingSession, data: Examples, batch: int) -> set[int]:
    """Return the sizes of the batches of an epoch; none if nobody knows them."""
    if data.size is None:
        return set()
    last = 0 if session.fixed_batch else data.size % batch
    return {size for size in (min(batch, data.size), last) if size}


def in_memory(data: Examples) -> bool:
    """Return whether all examples are in memory, and not in files that are mapped."""
    return data.arrays is not None and not (isinstance(data, DataSet) and data.mapped)
