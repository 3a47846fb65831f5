"""The models of a verification, told to select what the original selects.

Evidence: that of selections.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from amp_rewrite.errors import AmpError
from amp_rewrite.numerics.compare.selection_report import SelectionComparison, compared
from amp_rewrite.numerics.compare.selections import Selection, told_selections
from amp_rewrite.numerics.emulate.evaluator import Evaluator
from amp_rewrite.numerics.emulate.typed_model import TypedModel
from amp_rewrite.numerics.inputs.batches import Feeds

T = TypeVar("T")

Model = Callable[[], TypedModel | None]

Load = Callable[[Callable[[TypedModel], TypedModel], list[str]], Evaluator]
"""Loads the rewritten model, changed by a function, with more values fetched."""

RunOriginal = Callable[[Feeds, Collection[str]], Mapping[str, Any]]
"""Runs the original on a feed, and returns values by name."""


@dataclass(frozen=True, slots=True)
class Told:
    """What the rewritten model makes of a feed with the original's selections.

    Attributes:
        feeds: The original's selections, by the names of the inputs that take them.
        outputs: The rewritten model's outputs.
    """

    feeds: Feeds
    outputs: Mapping[str, Any]


class ToldModels:
    """Loads each model once, when it is first asked for: most models select the same."""

    def __init__(
        self,
        selections: tuple[Selection, ...],
        before: TypedModel,
        control: Model,
        rewritten: Load,
        run: RunOriginal,
        threads: int,
    ) -> None:
        """Take the models, which are not changed; nothing is loaded yet.

        Args:
            selections: The nodes that select.
            before: The original.
            control: Returns the original with rounded weights, or None.
            rewritten: Loads the rewritten model.
            run: Runs the original, which is told nothing.
            threads: See `Evaluator`.
        """
        self.selections = selections
        self._before, self._control_model, self._load = before, control, rewritten
        self.run, self._threads = run, threads

    @property
    def names(self) -> list[str]:
        """The values that say what is selected, in both models."""
        return [selection.index for selection in self.selections]

    @property
    def read(self) -> list[str]:
        """What the selections compare, in the original."""
        reads = (name for selection in self.selections for name in selection.reads if name)
        return list(dict.fromkeys(reads))

    def agreement(
        self, original: Mapping[str, Any], rewritten: Mapping[str, Any], feeds: Feeds
    ) -> tuple[SelectionComparison, ...]:
        """Compare the selections of one feed.

        Args:
            original: What the original selects, by `Selection.index`.
            rewritten: The same of the rewritten model.
            feeds: The feed.
        """
        pairs = [(s, original[s.index], rewritten[s.index]) for s in self.selections]
        differ = any(not np.array_equal(a, b) for _, a, b in pairs)
        values = self.run(feeds, self.read) if differ else {}
        comparisons: dict[str, SelectionComparison] = {}
        for s, a, b in pairs:
            comparison = compared(s, a, b, values) if differ else equal_choice(s, np.asarray(a))
            comparisons[comparison.value] = comparison
        return tuple(comparisons.values())

    def told(
        self, feeds: Feeds, fitted: Feeds, outputs: Collection[str]
    ) -> tuple[Told | None, tuple[SelectionComparison, ...]] | None:
        """Run the rewritten model with the original's selections.

        Args:
            feeds: The feed, in the types of the original.
            fitted: The same in those of the rewritten model.
            outputs: The names of the outputs.

        Returns:
            What it gives, and how far its own selections agree then. Where it selects by other
            numbers its outputs are its own: None in place of them. None if it does not run so.
        """
        evaluator = self.rewritten
        if evaluator is None:
            return None
        original = self.run(feeds, self.names)
        told = {s.told: original[s.index] for s in self.selections}
        told = {name: value for name, value in told.items() if name in evaluator.inputs}
        own = [s.own for s in self.selections if s.told in told]
        results = _attempt(lambda: evaluator.run({**fitted, **told}, [*outputs, *self.names, *own]))
        if results is None:
            return None
        chosen = {s.index: results[s.own if s.told in told else s.index] for s in self.selections}
        agreed = self.agreement(original, chosen, feeds)
        if not all(each.ok for each in agreed):
            return None, agreed
        agreed = tuple(replace(each, told=True) for each in agreed)
        return Told(told, {name: results[name] for name in outputs}), agreed

    @cached_property
    def rewritten(self) -> Evaluator | None:
        """The rewritten model, told what to select."""
        own = [s.own for s in self.selections]
        fetched = [*own, *self.names]
        return _attempt(lambda: self._load(self._change_model, fetched))

    @cached_property
    def original(self) -> Evaluator | None:
        """The original, told what to select."""
        return self._load_model(self._before)

    @cached_property
    def control(self) -> Evaluator | None:
        """The original with rounded weights, told what to select."""
        return self._load_model(self._control_model())

    def _change_model(self, model: TypedModel) -> TypedModel:
        return told_selections(model, self.selections)

    def _load_model(self, model: TypedModel | None) -> Evaluator | None:
        if model is None:
            return None
        return _attempt(lambda: Evaluator(self._change_model(model), threads=self._threads))


def equal_choice(selection: Selection, chosen: np.ndarray[Any, Any]) -> SelectionComparison:
    """Return the comparison of a selection that is the same in both models."""
    count = chosen.shape[-1] if selection.op == "NonZero" else chosen.size
    count = chosen.shape[0] if selection.op == "NonMaxSuppression" else count
    return SelectionComparison(selection.node, selection.op, selection.index, count, count)


def run_told(
    evaluator: Evaluator | None, feeds: Feeds, told: Told, outputs: Collection[str]
) -> Mapping[str, Any] | None:
    """Return what a model of `ToldModels` makes of a feed, told what the original selects."""
    if evaluator is None:
        return None
    fed = {name: value for name, value in told.feeds.items() if name in evaluator.inputs}
    return _attempt(lambda: evaluator.run({**feeds, **fed}, outputs))


def _attempt(compute: Callable[[], T]) -> T | None:
    """Return a result, or None where it cannot be had."""
    try:
        return compute()
    except AmpError:
        return None
