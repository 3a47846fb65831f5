"""States that go in and come out at each call: a small error of each of many calls shows.

Both models are called many times, each with the states (inputs/fed_states.py) that it made itself.

Evidence: an exponential mean of a stream (tests/numerics/compare/test_fed_back.py): of one call it
passes; after 1,000 calls it is a tenth off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from amp_rewrite.graph.tensors import all_tensors
from amp_rewrite.numerics.compare.distance import Comparer, add_feed
from amp_rewrite.numerics.compare.made_up_inputs import lost_in
from amp_rewrite.numerics.compare.verification import Verification
from amp_rewrite.numerics.compare.verify_records import FedBack
from amp_rewrite.numerics.inputs.batches import Feeds

CALLS = (32, 1000)
"""The fewest and the most calls."""

MOST_BYTES = 1 << 30
"""How many bytes all calls beyond the fewest may read and make: a second or two. A limit of time
would let the verdict depend on the machine."""

_LAST, _USUAL = 8, 32
"""How many of the last calls are compared, and how many of all say how large outputs are."""

Values = Mapping[str, Any]


def calls_fed_back(
    run: Verification, named: Mapping[str, str], feeds: Sequence[Feeds]
) -> FedBack | None:
    """Call both models many times and compare the last calls.

    `named` are as of `states_of`, `feeds` come in turn. Outputs are as large as they are over all
    calls. None where no state fits, or the original is not finite.
    """
    first, outputs = feeds[0], run.run_original(feeds[0])
    states = {
        name: output
        for name, output in named.items()
        if isinstance(first.get(name), np.ndarray)
        and first[name].shape == np.shape(outputs[output])
        and first[name].dtype == np.asarray(outputs[output]).dtype
    }
    calls = (
        _calls(feeds, states, call, _count(run)) for call in (run.run_original, run.run_rewritten)
    )
    made: list[tuple[Values, Values]] = []
    for pair in zip(*calls, strict=True) if states else ():
        if lost_in(pair[0], {}) is not None:
            break
        made.append(pair)
    if not made:
        return None
    usual = {name: Comparer(name, run.tolerances) for name in run.outputs}
    for k in np.random.default_rng(0).permutation(len(made))[:_USUAL]:
        add_feed(usual, made[k][0], made[k][0])
    comparers = {n: Comparer(n, run.tolerances, seen) for n, seen in usual.items()}
    for expected, found in made[-_LAST:]:
        add_feed(comparers, expected, found)
    compared = tuple(comparer.result() for comparer in comparers.values())
    return FedBack(len(made), tuple(sorted(states.values())), compared)


def _count(run: Verification) -> int:
    """Return how often the models are called."""
    each = sum(run.inside.sizes.values())
    each += sum(tensor.nbytes for tensor in all_tensors(run.before.model))
    return max(CALLS[0], min(CALLS[1], MOST_BYTES // max(1, each)))


def _calls(
    feeds: Sequence[Feeds], states: Mapping[str, str], call: Callable[[Feeds], Values], count: int
) -> Iterator[Values]:
    """Yield the outputs of one call after the other."""
    held: Feeds = {}
    for number in range(count):
        outputs = call({**feeds[number % len(feeds)], **held})
        held = {name: outputs[output] for name, output in states.items()}
        yield outputs
