"""States that go in and come out at each call: a small error of each of many calls shows.

An output is a state if an input of its shape and type is the same one call earlier: by its name
(`past` and `present`, `state`, `cache`, `h` and `hn`), or because it is arithmetic of that input.
Both models are called many times, each with the states that it made itself.

Evidence: an exponential mean of a stream (tests/numerics/compare/test_fed_back.py): of one call it
passes; after 1,000 calls it is a tenth off.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.graph.traits import operator
from amp_rewrite.numerics.compare.distance import Comparer, OutputComparison
from amp_rewrite.numerics.compare.finite_feeds import lost_in
from amp_rewrite.numerics.compare.moved_inputs import judged, moved
from amp_rewrite.numerics.compare.verification import Verification
from amp_rewrite.numerics.compare.verify_records import FedBack
from amp_rewrite.numerics.inputs.batches import Feeds
from amp_rewrite.numerics.inputs.consumers import Consumers, moves
from amp_rewrite.numerics.inputs.input_roles import Role, roles_of
from amp_rewrite.numerics.inputs.plausible import PlausibleInputs

CALLS = (32, 1000)
"""The fewest and the most calls."""

SECONDS = 2.0
"""How long the calls beyond the fewest may take."""

_LAST = 8
"""How many of the last calls are compared."""

_STATES = frozenset(
    {
        *("past", "present", "prev", "previous", "next", "state", "states", "cache", "memory"),
        *("mem", "carry", "h", "c", "hn", "cn", "h0", "c0"),
    }
)
_BEFORE = frozenset({"in", "input", "past", "prev", "previous", "old", "init", "initial", "0"})
_AFTER = frozenset({"out", "output", "present", "next", "new", "updated", "n", "final", "1"})
_SHORT = {"hn": "h", "cn": "c", "h0": "h", "c0": "c"}

# operators: arithmetic by which a state becomes the next one
_ARITHMETIC = frozenset(
    {
        *("Add", "Sub", "Mul", "Div", "Neg", "Max", "Min", "Clip", "Mod", "Where", "Sum", "Mean"),
        *("Round", "Floor", "Abs"),
    }
)

Run = Callable[[Feeds], Mapping[str, Any] | None]
Values = Mapping[str, Any]


def states_of(model: ir.Model, plausible: PlausibleInputs) -> dict[str, str]:
    """Return input -> the output that it is one call later; shapes are compared when they run.

    There have to be an input and an output besides that are none.
    """
    inputs = {v.name or "": v for v in model.graph.inputs if v.name in plausible.specs}
    outputs = {v.name or "": v for v in model.graph.outputs}
    pairs = dict(_by_name(inputs, outputs))
    roles = roles_of(model, plausible.specs, plausible.limits)
    consumers = Consumers(model)
    edges = [
        (name, made)
        for name, value in inputs.items()
        if name not in pairs and roles[name].role in (Role.DATA, Role.OTHER, Role.STATE)
        for made in dict.fromkeys(_made_of(consumers, value, outputs, pairs.values()))
    ]
    alike = {n: made for n, made in edges if _base(n, _BEFORE) == _base(made, _AFTER)}
    left = [e for e in edges if e[0] not in alike and e[1] not in alike.values()]
    firsts, seconds = Counter(n for n, _ in left), Counter(made for _, made in left)
    pairs |= alike
    if not pairs:
        pairs = {n: made for n, made in left if firsts[n] == seconds[made] == 1}
    has_others = len(pairs) < len(inputs) and len(set(pairs.values())) < len(outputs)
    return pairs if has_others else {}


def _by_name(inputs: Collection[str], outputs: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield inputs and outputs that are called the same, but for words of time."""
    after = {_base(name, _AFTER): name for name in outputs}
    for name in inputs:
        output = after.get(_base(name, _BEFORE))
        if output is not None and _STATES & {*_words(name), *_words(output)}:
            yield name, output


def _base(name: str, time_words: frozenset[str]) -> tuple[str, ...]:
    return tuple(_SHORT.get(word, word) for word in _words(name) if word not in time_words)


def _words(name: str) -> list[str]:
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return re.sub(r"[^a-z0-9]+", " ", split.lower()).split()


def _made_of(
    consumers: Consumers, value: ir.Value, outputs: Mapping[str, ir.Value], taken: Collection[str]
) -> Iterator[str]:
    """Yield the outputs that are arithmetic of an input."""
    ends = {end: name for name, end in outputs.items() if name not in taken and end is not value}

    def passes(node: ir.Node, index: int) -> bool:
        return moves(node, index) or operator(node) in _ARITHMETIC

    for node, index in consumers.uses(value, passes):
        if passes(node, index):
            yield from (ends[made] for made in node.outputs if made in ends)


@dataclass
class StateCalls:
    """The calls of one verification.

    Attributes:
        run: The models.
        states: Input -> the output that it is one call later.
        feeds: What is fed besides, one after the other and again.
    """

    run: Verification
    states: Mapping[str, str]
    feeds: Sequence[Feeds]

    def report(self) -> FedBack | None:
        """Call both models and compare; None where no state fits, or the original is not finite."""
        states = self._fitting_states()
        if not states:
            return None
        expected, found = self._compare(states, self.run.run_original, self.run.run_rewritten)
        if not expected:
            return None
        outputs = tuple(c.result([]) for c in found.values())
        if not all(output.ok for output in outputs):
            outputs = self._excused(states, expected, found)
        return FedBack(len(expected), tuple(sorted(states.values())), outputs)

    def _fitting_states(self) -> dict[str, str]:
        """Return the states whose shapes and types stay."""
        first = self.feeds[0]
        made = self.run.run_original(first)
        return {
            name: output
            for name, output in self.states.items()
            if isinstance(first.get(name), np.ndarray)
            and first[name].shape == np.shape(made[output])
            and first[name].dtype == np.asarray(made[output]).dtype
        }

    def _compare(
        self, states: Mapping[str, str], original: Run, other: Run
    ) -> tuple[list[Values], dict[str, Comparer]]:
        """Return the original's outputs of each call, and the comparison of the last ones."""
        expected: list[Values] = []
        made: list[Values] = []
        calls = (_calls(self.feeds, states, run) for run in (original, other))
        start = time.perf_counter()
        for before, after in zip(*calls, strict=False):
            if lost_in(before, {}) is not None:
                break
            expected.append(before)
            made.append(after)
            is_over = time.perf_counter() - start > SECONDS and len(expected) >= CALLS[0]
            if is_over or len(expected) == CALLS[1]:
                break
        return expected, self._compared(expected, made)

    def _compared(self, expected: Sequence[Values], made: Sequence[Values]) -> dict[str, Comparer]:
        comparers = {name: Comparer(name, self.run.tolerances) for name in self.run.outputs}
        for before, after in list(zip(expected, made, strict=False))[-_LAST:]:
            for name, comparer in self.run.compared(before, after, {}, {}).items():
                comparers[name].merge(comparer)
        return comparers

    def _excused(
        self, states: Mapping[str, str], expected: Sequence[Values], found: Mapping[str, Comparer]
    ) -> tuple[OutputComparison, ...]:
        """Return the comparisons, held against what yardsticks make of as many calls."""
        weights = partial(self.run.weights_alone.run, names=self.run.outputs)
        shifted = [moved(feeds) or feeds for feeds in self.feeds]
        most = len(expected)
        control = self._compared(expected, [*_calls(self.feeds, states, weights, most)])
        moves = self._compared(expected, [*_calls(shifted, states, self.run.run_original, most)])
        limits, rounds = self.run.tolerances, self.run.weights_alone.rounds
        return tuple(
            judged(comparer, control[name], moves[name], limits, rounds=rounds)
            for name, comparer in found.items()
        )


def _calls(
    feeds: Sequence[Feeds], states: Mapping[str, str], run: Run, most: int = CALLS[1]
) -> Iterator[Values]:
    """Yield the outputs of one call after the other; none behind one that does not run."""
    held: Feeds = {}
    for number in range(most):
        outputs = run({**feeds[number % len(feeds)], **held})
        if outputs is None:
            return
        held = {name: outputs[output] for name, output in states.items()}
        yield outputs
