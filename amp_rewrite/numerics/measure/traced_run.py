"""A model whose nodes are timed by the engine that runs it, told in nodes of the float32 model.

Engines fuse nodes, drop them, and add casts and changes of layout. A node of the float32 model
belongs to the engine's node that names it, or gives its result; else to the one to which all that
reads it belongs. What an engine adds by itself, a change of layout, counts for the next node that
it runs, in front of which it stands as a rule.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import onnx_ir as ir

from amp_rewrite.graph.clone import clone
from amp_rewrite.graph.flat import ABSENT, FlatGraph
from amp_rewrite.graph.io.read import read_model
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.numerics.emulate.evaluator import Evaluator
from amp_rewrite.rewriting.api import RewriteResult
from amp_rewrite.runtimes.session import RanNode

_OWN, _ADDED = "n", "a"
"""How nodes are called while they are timed: those of the float32 model, and those added to it."""


class Names:
    """How the values of a rewritten model are called in the float32 model.

    Attributes:
        flat: The float32 model.
        node_of: Name of a value in the rewritten model -> the node that makes it.
        added: What `apply` called a node -> its first result.
    """

    def __init__(self, flat: FlatGraph, inner: Mapping[int, str] | None = None) -> None:
        """Take the names; names that several values have are left out.

        Args:
            flat: The float32 model.
            inner: Value -> its name in the rewritten model, of those that gave theirs to a cast.
        """
        self.flat = flat
        self.added: dict[str, str] = {}
        renamed = inner or {}
        counts = Counter(flat.value_names)
        named = (
            (renamed.get(value, name), node)
            for value, (name, node) in enumerate(zip(flat.value_names, flat.producer, strict=True))
            if node != ABSENT and name and counts[name] == 1
        )
        self.node_of: dict[str, int] = dict(named)

    def apply(self, model: ir.Model) -> ir.Model:
        """Return a copy of a model whose nodes are named by the node that they are."""
        copy = clone(model)
        for number, node in enumerate(copy.graph.all_nodes()):
            results = [value.name or "" for value in node.outputs]
            own = next((self.node_of[name] for name in results if name in self.node_of), None)
            node.name = f"{_ADDED}{number}" if own is None else f"{_OWN}{own}"
            self.added[node.name] = results[0] if results else ""
        return copy

    def node_named(self, name: str) -> int | None:
        """Return the node that `apply` gave a name; None for what it called otherwise."""
        number = name.removeprefix(_OWN)
        is_own = name.startswith(_OWN) and number.isdigit() and int(number) < self.flat.n_nodes
        return int(number) if is_own else None


@dataclass(frozen=True)
class TracedRun:
    """What an engine ran of a model, and how long it took.

    Attributes:
        flat: The float32 model.
        nodes: The engine's nodes, each once, in order.
        microseconds: What each of them took in a run, the median of the runs behind the first.
        owners: Node of the float32 model -> the engine's node that computes it.
        casts: What a node that the rewrite added gives -> microseconds, of those that the engine
            ran as nodes of their own.
        around: The engine's node -> microseconds of what the engine added in front of it.
    """

    flat: FlatGraph
    nodes: tuple[RanNode, ...]
    microseconds: tuple[float, ...]
    owners: Mapping[int, int]
    casts: Mapping[str, float]
    around: Mapping[int, float] = field(default_factory=dict[int, float])

    @cached_property
    def groups(self) -> dict[int, tuple[int, ...]]:
        """Node of the engine -> the nodes of the float32 model that it computes."""
        nodes_of: dict[int, list[int]] = {}
        for node, owner in sorted(self.owners.items()):
            nodes_of.setdefault(owner, []).append(node)
        return {owner: tuple(nodes) for owner, nodes in nodes_of.items()}

    @cached_property
    def times(self) -> dict[int, float]:
        """Node of the float32 model -> microseconds.

        What the engine computes as one is divided among its products, or else among all of it.
        """
        microseconds_of: dict[int, float] = {}
        for owner, nodes in self.groups.items():
            called = self.flat.called
            products = [n for n in nodes if has(called(n), Trait.CONTRACTS)] or nodes
            taken = self.microseconds[owner] + self.around.get(owner, 0.0)
            microseconds_of |= dict.fromkeys(nodes, 0.0)
            microseconds_of |= dict.fromkeys(products, taken / len(products))
        return microseconds_of


class TracedModel:
    """A model that is loaded to be timed node by node, and afterwards as a whole."""

    def __init__(self, model: ir.Model, names: Names, provider: str) -> None:
        """Load a model, which is not changed.

        Raises:
            AmpError: The engine cannot load it.
        """
        self._names, self._runs = names, 0
        self.evaluator = Evaluator(
            names.apply(model),
            emulate=False,
            providers=[provider],
            profile=True,
            trace=True,
        )

    def run(self, feeds: Mapping[str, Any]) -> None:
        """Run it once."""
        self.evaluator.run(feeds)
        self._runs += 1

    def traced(self) -> TracedRun:
        """Return what ran until now, and end timing nodes."""
        ran = self.evaluator.ran_nodes()
        by_name: dict[tuple[str, str], list[RanNode]] = {}
        for node in ran:
            by_name.setdefault((node.name or str(len(by_name)), node.op), []).append(node)
        nodes = tuple(events[0] for events in by_name.values())
        taken = tuple(_median(events, self._runs) for events in by_name.values())
        owners = _owners(nodes, self._names)
        added = self._names.added
        casts = {
            added[node.name]: microseconds
            for index, (node, microseconds) in enumerate(zip(nodes, taken, strict=True))
            if node.name in added and index not in owners.values()
        }
        owned, added_nodes = {*owners.values()}, added.keys()
        foreign = [
            microseconds if index not in owned and node.name not in added_nodes else None
            for index, (node, microseconds) in enumerate(zip(nodes, taken, strict=True))
        ]
        around = counted_behind(foreign, owned)
        return TracedRun(self._names.flat, nodes, taken, owners, casts, around)


def counted_behind(foreign: Sequence[float | None], owned: Collection[int]) -> dict[int, float]:
    """Return, by owned node, the time of what stands in front of it; of the last, behind it, too.

    Args:
        foreign: By node of the engine, what it takes if it is none of the model's, or of a rewrite.
        owned: The nodes of the engine that are the model's.
    """
    around, waiting, last = dict[int, float](), 0.0, None
    for index, microseconds in enumerate(foreign):
        waiting += microseconds or 0.0
        if index in owned:
            around[index] = around.get(index, 0.0) + waiting
            waiting, last = 0.0, index
    if last is not None:
        around[last] += waiting
    return around


def _median(events: Sequence[RanNode], runs: int) -> float:
    """Return what a node took in a run; in the first one an engine may still compile.

    An engine that tells a mean has one event for all runs.
    """
    times = [float(event.microseconds) for event in events]
    each = len(times) // max(runs, 1)
    if not each or len(times) % runs:
        return sum(times) / max(1, runs if len(times) >= runs else len(times))
    sums = [sum(times[at : at + each]) for at in range(0, len(times), each)]
    return statistics.median(sums[1:] or sums)


def _owners(nodes: Sequence[RanNode], names: Names) -> dict[int, int]:
    """Return which engine's node computes a node of the float32 model."""
    owner_of: dict[int, int] = {}
    for index, ran in enumerate(nodes):
        own = [names.node_named(name) for name in (ran.name, *ran.covers)]
        own += [names.node_of.get(name) for name in ran.results]
        for node in own:
            if node is not None:
                owner_of.setdefault(node, index)
    flat = names.flat
    for node in reversed(range(flat.n_nodes)):
        if node not in owner_of:
            readers = {r for value in flat.outputs_of(node) for r in flat.readers(value)}
            owners = {owner_of.get(reader, ABSENT) for reader in readers}
            if len(owners) == 1 and ABSENT not in owners:
                owner_of[node] = owners.pop()
    return owner_of


def traced_original(result: RewriteResult, provider: str) -> TracedModel:
    """Return the float32 model of a rewrite, loaded to be timed."""
    model = read_model(result.flat)
    return TracedModel(model, Names(result.flat), provider)


def traced_result(result: RewriteResult, provider: str) -> TracedModel:
    """Return a rewritten model, loaded to be timed."""
    return TracedModel(result.model, Names(result.flat, result.plan.inner), provider)
