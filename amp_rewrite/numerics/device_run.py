"""Run a model on an execution provider: results, times, and which provider takes which node."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from amp_rewrite import targets
from amp_rewrite.base.printable import counted
from amp_rewrite.dtypes import FLOAT32, LOW
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.io.load import Source, load
from amp_rewrite.numerics.emulate.emulated_feeds import widened
from amp_rewrite.numerics.emulate.evaluator import Evaluator
from amp_rewrite.numerics.inputs.batches import Data, batches
from amp_rewrite.rewriting.apply.written_metadata import recorded_target
from amp_rewrite.rewriting.report.records import Shown
from amp_rewrite.runtimes.engines import notes_on, own_choices
from amp_rewrite.runtimes.session import RanNode
from amp_rewrite.targets import CPU

FLOATS = (FLOAT32.name, *LOW)
"""The types whose nodes are named."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DeviceRun(Shown):
    """The result of `run_on`.

    Attributes:
        first: Seconds of the first run, in which a provider may compile.
        seconds: Of each run after it.
        nodes: The nodes in the order of the first run; those inside subgraphs once a run.
        outputs: Output name -> array, or a list of arrays, of the last run.
        beside: What ran in turn with it -> its seconds: the original as it is, and with the types
            that the engine itself would choose for it.
        notes: What the engine does otherwise here than the model says.
    """

    provider: str
    first: float
    seconds: tuple[float, ...]
    nodes: tuple[RanNode, ...]
    outputs: Mapping[str, Any] = field(compare=False)
    beside: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])
    notes: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield times, how many nodes each provider took, and the operators it took."""
        then = f", then {_in_words(self.seconds)}" if self.seconds else ""
        yield f"{self.provider}: first run {self.first:.3g} s{then}"
        yield from (f"{name}: {_in_words(seconds)}" for name, seconds in self.beside.items())
        for provider in dict.fromkeys([self.provider, *(node.provider for node in self.nodes)]):
            taken = [node for node in self.nodes if node.provider == provider]
            yield f"{provider} took {counted(len(taken), 'node')}: {_operators(taken) or 'none'}"
        for name in FLOATS:
            nodes = [node for node in self.nodes if node.type == name]
            took = sum(node.microseconds for node in nodes) / 1000
            if nodes:
                yield f"computed in {name}, {took:.3g} ms of the first run: {_operators(nodes)}"
        yield from self.notes


def _operators(nodes: Sequence[RanNode]) -> str:
    counts = Counter(node.op for node in nodes)
    return ", ".join(f"{n} {op}" for op, n in counts.most_common())


def _in_words(seconds: Sequence[float]) -> str:
    low, high = min(seconds), max(seconds)
    return f"{np.median(seconds):.3g} s (median of {len(seconds)}, {low:.3g} to {high:.3g})"


def run_on(
    model: Source,
    data: Data,
    provider: str = CPU,
    *,
    repeat: int = 10,
    threads: int = 0,
    original: Source | None = None,
) -> DeviceRun:
    """Run a model as it is, without emulation, on an execution provider.

    The first batch of the data runs, `repeat` times after the first, in turn with the `original`,
    if one is given.

    Raises:
        AmpError: The model or the data are wrong, the provider cannot be used or cannot run it.
    """
    if repeat < 0:
        raise OptionError("impossible repeat", found=repeat, expected="at least 0")
    loaded = load(model)
    feeds = next(batches(data, loaded), {})
    evaluator = Evaluator(
        loaded, emulate=False, providers=[provider], threads=threads, profile=True
    )
    try:
        first, outputs = _time_run(evaluator, feeds)
    finally:
        nodes = evaluator.ran_nodes()  # which leaves no profile behind, whatever ended the run
    others: dict[str, Evaluator] = {}
    if original is not None:  # as it is, and in the types of the engine's choice
        others = {
            name: Evaluator(original, emulate=False, providers=[engine], threads=threads)
            for name, engine in {"the original": provider, **own_choices(provider)}.items()
        }
    seconds: list[float] = []
    beside: dict[str, list[float]] = {name: [] for name in others}
    specs = next(iter(others.values())).inputs if others else {}
    wide = {name: widened(value) for name, value in feeds.items() if name in specs}
    for other in others.values():
        other.run(wide)
    for _ in range(repeat):
        taken, outputs = _time_run(evaluator, feeds)
        seconds.append(taken)
        for name, other in others.items():
            beside[name].append(_time_run(other, wide)[0])
    timed = {name: tuple(times) for name, times in beside.items() if times}
    recorded = recorded_target(loaded)
    its, notes = None if recorded is None else targets.find(recorded).provider, []
    if its not in (None, provider):
        notes = [f"the model says that it was made for target {recorded}, which is {its}"]
    notes += notes_on(provider, evaluator.precisions)
    return DeviceRun(provider, first, tuple(seconds), nodes, outputs, timed, tuple(notes))


def _time_run(evaluator: Evaluator, feeds: Mapping[str, Any]) -> tuple[float, dict[str, Any]]:
    start = time.perf_counter()
    outputs = evaluator.run(feeds)
    return time.perf_counter() - start, outputs
