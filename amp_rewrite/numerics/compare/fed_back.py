"""States that go in and come out at each call: a small error of each of many calls shows.

An output is a state if an input of its name, words of time aside, is the same one call earlier, and
either their names say so (`past` and `present`, `state`, `cache`, `h` and `hn`) or it is arithmetic
of that input. Both models are called many times, each with the states that it made itself.

Evidence: an exponential mean of a stream (tests/numerics/compare/test_fed_back.py): of one call it
passes; after 1,000 calls it is a tenth off.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from amp_rewrite.graph.traits import operator
from amp_rewrite.numerics.compare.distance import Comparer, OutputComparison, OutputSize, add_feed
from amp_rewrite.numerics.compare.made_up_inputs import lost_in
from amp_rewrite.numerics.compare.moved_inputs import judged, moved
from amp_rewrite.numerics.compare.verification import Verification
from amp_rewrite.numerics.compare.verify_records import FedBack
from amp_rewrite.numerics.inputs.batches import Feeds
from amp_rewrite.numerics.inputs.consumers import Consumers, moves
from amp_rewrite.numerics.inputs.plausible import PlausibleInputs

CALLS = (32, 1000)
"""The fewest and the most calls."""

MOST_BYTES = 1 << 30
"""How many bytes all calls beyond the fewest may read and make: a second or two. A limit of time
would let the verdict depend on the machine."""

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
    after = {_base(v.name or "", _AFTER): v for v in model.graph.outputs}
    consumers, pairs = Consumers(model), dict[str, str]()
    for name, value in inputs.items():
        output = after.get(_base(name, _BEFORE))
        if output is None or output is value:
            continue
        made = output.name or ""
        if _STATES & {*_words(name), *_words(made)} or _is_arithmetic(consumers, value, output):
            pairs[name] = made
    has_others = len(pairs) < len(inputs) and len(set(pairs.values())) < len(model.graph.outputs)
    return pairs if has_others else {}


def _base(name: str, time_words: frozenset[str]) -> tuple[str, ...]:
    return tuple(_SHORT.get(word, word) for word in _words(name) if word not in time_words)


def _words(name: str) -> list[str]:
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return re.sub(r"[^a-z0-9]+", " ", split.lower()).split()


def _is_arithmetic(consumers: Consumers, value: ir.Value, output: ir.Value) -> bool:
    """Tell whether an output is arithmetic of an input."""

    def passes(node: ir.Node, index: int) -> bool:
        return moves(node, index) or operator(node) in _ARITHMETIC

    uses = consumers.uses(value, passes)
    return any(passes(node, index) and output in node.outputs for node, index in uses)


class StateCalls(NamedTuple):
    """The calls of one verification; `states` are as of `states_of`, `feeds` come in turn."""

    run: Verification
    states: Mapping[str, str]
    feeds: Sequence[Feeds]

    def report(self) -> FedBack | None:
        """Call both models and compare; None where no state fits, or the original is not finite."""
        first = self.feeds[0]
        made = self.run.run_original(first)
        states = {
            name: output
            for name, output in self.states.items()
            if isinstance(first.get(name), np.ndarray)
            and first[name].shape == np.shape(made[output])
            and first[name].dtype == np.asarray(made[output]).dtype
        }
        if not states:
            return None
        expected, found = self._compare(states)
        if not expected:
            return None
        outputs = tuple(c.result() for c in found.values())
        if not all(output.ok for output in outputs):
            outputs = self._excused(states, expected, found)
        return FedBack(len(expected), tuple(sorted(states.values())), outputs)

    def _compare(self, states: Mapping[str, str]) -> tuple[list[Values], dict[str, Comparer]]:
        """Return the original's outputs of each call, and the comparison of the last ones."""
        expected: list[Values] = []
        made: list[Values] = []
        runs = (self.run.run_original, self.run.run_rewritten)
        calls = (_calls(self.feeds, states, run, self._most()) for run in runs)
        for before, after in zip(*calls, strict=False):
            if lost_in(before, {}) is not None:
                break
            expected.append(before)
            made.append(after)
        return expected, self._compared(expected, made)

    def _most(self) -> int:
        """Return how often the models are called."""
        if self.run.inside is None:
            return CALLS[0]
        values = sum(self.run.inside.sizes.values())
        weights = (v.const_value for v in self.run.before.model.graph.initializers.values())
        each = values + sum(tensor.nbytes for tensor in weights if tensor is not None)
        return max(CALLS[0], min(CALLS[1], MOST_BYTES // max(1, each)))

    def _compared(self, expected: Sequence[Values], made: Sequence[Values]) -> dict[str, Comparer]:
        """Compare the last calls; outputs are as large as they are over all of them."""
        sizes = {name: self._size(name, expected) for name in self.run.outputs}
        comparers = {n: Comparer(n, self.run.tolerances, size) for n, size in sizes.items()}
        for before, after in list(zip(expected, made, strict=False))[-_LAST:]:
            add_feed(comparers, before, after)
        return comparers

    def _size(self, name: str, expected: Sequence[Values]) -> OutputSize:
        comparer = Comparer(name, self.run.tolerances)
        for values in expected[::_LAST]:
            comparer.add(values[name], values[name])
        return comparer.size

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
    feeds: Sequence[Feeds], states: Mapping[str, str], run: Run, most: int
) -> Iterator[Values]:
    """Yield the outputs of one call after the other, up to one that does not run."""
    held: Feeds = {}
    for number in range(most):
        outputs = run({**feeds[number % len(feeds)], **held})
        if outputs is None:
            return
        held = {name: outputs[output] for name, output in states.items()}
        yield outputs
