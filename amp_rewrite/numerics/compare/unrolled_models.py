"""The models of a verification with their bodies unrolled as the original runs them on a feed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property

from amp_rewrite.errors import AmpError
from amp_rewrite.numerics.compare.selections import selections_of
from amp_rewrite.numerics.compare.told_models import Load, Model, ToldModels
from amp_rewrite.numerics.compare.unrolled_bodies import (
    Key,
    asking,
    batched,
    holders,
    size_of,
    turns_of,
    unrolled,
    written_name,
)
from amp_rewrite.numerics.emulate.evaluator import Evaluator
from amp_rewrite.numerics.emulate.typed_model import TypedModel
from amp_rewrite.numerics.inputs.batches import Feeds

MOST_NODES = 20_000
"""The most nodes that bodies may become: the runtime loads them in some five seconds."""


@dataclass(frozen=True)
class _Models:
    """The original, the rewritten model and the rounded weights alone, unrolled in the same way."""

    before: TypedModel
    after: TypedModel
    control: TypedModel | None
    threads: int
    decisions: tuple[str, ...] = ()

    def unrolled(self, turns: dict[Key, int]) -> _Models:
        """Return the models with bodies in place of the nodes that have them."""
        before, decisions = unrolled(self.before.model, turns)
        after, _ = unrolled(self.after.model, turns)
        control = None if self.control is None else unrolled(self.control.model, turns)[0]
        return _Models(
            TypedModel(before),
            TypedModel(after),
            None if control is None else TypedModel(control),
            self.threads,
            (*self.decisions, *decisions),
        )


class _Level:
    """Models of which some bodies are unrolled, and what the nodes with bodies in them do next."""

    def __init__(self, models: _Models, idle: frozenset[Key], large: frozenset[Key]) -> None:
        """Take the models, the nodes that turn no more, and those that are too large."""
        self.models, self.idle, self.large = models, idle, large
        self._next: _Level | None = None
        self._turns: dict[Key, int] = {}
        there = holders(models.after.model).keys() - idle - large
        items = holders(models.before.model).items()
        self.nodes = {key: node for key, node in items if key in there}

    @cached_property
    def _asking_model(self) -> tuple[Evaluator, dict[Key, str]]:
        model, names = asking(self.models.before.model, list(self.nodes))
        typed = TypedModel(model, spare=True)
        evaluator = Evaluator(typed, outputs=dict.fromkeys(names), threads=self.models.threads)
        return evaluator, dict(zip(self.nodes, names, strict=True))

    def next(self, feeds: Feeds) -> _Level:
        """Return the models with more bodies unrolled, as the original runs them on a feed.

        Raises:
            AmpError: They cannot be.
        """
        evaluator, names = self._asking_model
        said = evaluator.run(feeds)
        turns = {key: turns_of(key, node, said[names[key]]) for key, node in self.nodes.items()}
        if self._next is None or self._turns != turns:
            self._turns, self._next = turns, self._made(turns)
        return self._next

    def _made(self, turns: dict[Key, int]) -> _Level:
        idle, large, chosen = set(self.idle), set(self.large), dict[Key, int]()
        nodes = self.models.before.model.graph.num_nodes()
        for key, count in turns.items():
            size = size_of(self.nodes[key], count)
            if not count and key[0] != "If":
                idle.add(key)
            elif nodes + size > MOST_NODES:
                large.add(key)
            else:
                chosen[key] = count
                nodes += size
        models = self.models.unrolled(chosen) if chosen else self.models
        return _Level(models, frozenset(idle), frozenset(large))


class UnrolledModels:
    """Unrolls bodies in which nodes select; what was loaded for the last feed is kept."""

    def __init__(
        self,
        before: TypedModel,
        after: TypedModel,
        control: Model,
        load: Load,
        outputs: Collection[str],
        threads: int,
    ) -> None:
        """Take the models, which are not changed; nothing is loaded yet.

        Args:
            before: The original.
            after: The rewritten model.
            control: Returns the original with rounded weights, or None.
            load: Loads the rewritten model, changed by a function, with more values fetched.
            outputs: The names of the outputs.
            threads: See `Evaluator`.
        """
        self._before, self._after, self._control = before, after, control
        self._load, self._outputs, self._threads = load, outputs, threads
        self._told: tuple[_Level, ToldModels] | None = None

    @cached_property
    def select(self) -> bool:
        """Whether a node selects inside a body of the original."""
        return bool(holders(self._before.model) or batched(self._before.model))

    @cached_property
    def _first_level(self) -> _Level:
        models = _Models(self._before, self._after, self._control(), self._threads)
        return _Level(models, frozenset(), frozenset())

    def of(self, feeds: Feeds) -> tuple[ToldModels | None, str | None]:
        """Return the models to be told on a feed, and what cannot be told, if there is anything."""
        level = self._first_level
        missing = holders(self._before.model).keys() - level.nodes.keys()
        try:
            while level.nodes:
                level = level.next(feeds)
            told = self._models(level)
        except AmpError as error:
            return None, f"they cannot be unrolled ({error.found or error.what})"
        if with_batch := batched(self._before.model):
            return told, f"{_name_nodes(with_batch)} is of opset 8, whose batches are not unrolled"
        if missing:
            return told, f"{_name_nodes(missing)} is not in both models"
        if level.large:
            most = f"{MOST_NODES:,} nodes at most"
            return told, f"{_name_nodes(level.large)} runs more nodes than are unrolled ({most})"
        return told, None

    def _models(self, level: _Level) -> ToldModels | None:
        if self._told is None or self._told[0] is not level:
            self._told = (level, self._made(level))
        told = self._told[1]
        return told if told.names else None

    def _made(self, level: _Level) -> ToldModels:
        models = level.models

        def load(change: Callable[[TypedModel], TypedModel], more: list[str]) -> Evaluator:
            return self._load(lambda _: change(models.after), more)

        selections = selections_of(models.before, models.after.model)
        names = (name for each in selections for name in (each.index, *each.reads) if name)
        fetched = dict.fromkeys((*self._outputs, *names, *models.decisions))
        original = Evaluator(models.before, outputs=fetched, threads=self._threads)
        return ToldModels(
            selections,
            models.before,
            lambda: models.control,
            load,
            original.run,
            self._threads,
            decisions=models.decisions,
        )


def _name_nodes(keys: Collection[Key]) -> str:
    op, *outputs = min(keys)
    return f"{op} {written_name(outputs[0])}"
