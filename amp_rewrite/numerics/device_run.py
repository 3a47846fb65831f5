"""Run a model on an execution provider: results, times, and which provider takes which node."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite import targets
from amp_rewrite.dtypes import FLOAT32, LOW
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.io.load import Source, load
from amp_rewrite.numerics.emulate.emulated_feeds import widened
from amp_rewrite.numerics.emulate.evaluator import Evaluator
from amp_rewrite.rewriting.apply.written_metadata import recorded_target
from amp_rewrite.rewriting.report.records import Shown
from amp_rewrite.runtimes.engines import notes_on, own_choices
from amp_rewrite.runtimes.session import RanNode
from amp_rewrite.targets import CPU

FLOATS = (FLOAT32.name, *LOW)
"""The types of which it is told what computed in them."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DeviceRun(Shown):
    """The result of `run_on`.

    Attributes:
        provider: What was asked for.
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

    @property
    def elsewhere(self) -> tuple[RanNode, ...]:
        """The nodes that another provider took."""
        return tuple(node for node in self.nodes if node.provider != self.provider)

    def lines(self) -> Iterator[str]:
        """Yield times, how many nodes each provider took, and the operators it took."""
        then = f", then {_in_words(self.seconds)}" if self.seconds else ""
        yield f"{self.provider}: first run {self.first:.3g} s{then}"
        yield from (f"{name}: {_in_words(seconds)}" for name, seconds in self.beside.items())
        for provider in dict.fromkeys([self.provider, *(node.provider for node in self.nodes)]):
            taken = Counter(node.op for node in self.nodes if node.provider == provider)
            operators = ", ".join(f"{n} {op}" for op, n in taken.most_common())
            yield f"{provider} took {taken.total()} nodes: {operators or 'none'}"
        for name in FLOATS:
            if any(node.type == name for node in self.nodes):
                yield self._in_type(name)
        yield from self.notes

    def _in_type(self, name: str) -> str:
        """Return which nodes computed in a type, and how long."""
        nodes = [node for node in self.nodes if node.type == name]
        operators = ", ".join(f"{n} {op}" for op, n in Counter(n.op for n in nodes).most_common())
        milliseconds = sum(node.microseconds for node in nodes) / 1000
        return f"computed in {name}, {milliseconds:.3g} ms of the first run: {operators}"


def _made_for(model: ir.Model, provider: str) -> tuple[str, ...]:
    """Say that a model says that it was made for what it did not run on."""
    recorded = recorded_target(model)
    its = None if recorded is None else targets.find(recorded).provider
    if its in (None, provider):
        return ()
    return (f"the model says that it was made for target {recorded}, which is {its}",)


def _in_words(seconds: Sequence[float]) -> str:
    low, high = min(seconds), max(seconds)
    return f"{np.median(seconds):.3g} s (median of {len(seconds)}, {low:.3g} to {high:.3g})"


def run_on(
    model: Source,
    feeds: Mapping[str, Any],
    provider: str = CPU,
    *,
    repeat: int = 10,
    threads: int = 0,
    original: Source | None = None,
) -> DeviceRun:
    """Run a model as it is, without emulation, on an execution provider.

    Args:
        model: A path, an onnx_ir model or a ModelProto; not modified.
        feeds: Input name -> array, of the model's types.
        provider: The execution provider.
        repeat: How often it runs after the first time.
        threads: Threads inside an operator; 0 is OMP_NUM_THREADS, or the engine's choice.
        original: The model before it was rewritten, which then runs in turn with it.

    Raises:
        AmpError: The model or a feed is wrong, the provider cannot be used or cannot run it.
    """
    if repeat < 0:
        raise OptionError("impossible repeat", found=repeat, expected="at least 0")
    loaded = load(model)
    evaluator = Evaluator(
        loaded, emulate=False, providers=[provider], threads=threads, profile=True
    )
    try:
        first, outputs = _time_run(evaluator, feeds)
    finally:
        nodes = evaluator.ran_nodes()  # which leaves no profile behind, whatever ended the run
    others = {} if original is None else _originals(original, provider, threads)
    seconds: list[float] = []
    beside: dict[str, list[float]] = {name: [] for name in others}
    wide = {} if original is None else _widen_feeds(feeds, others)
    for other in others.values():
        other.run(wide)
    for _ in range(repeat):
        taken, outputs = _time_run(evaluator, feeds)
        seconds.append(taken)
        for name, other in others.items():
            beside[name].append(_time_run(other, wide)[0])
    timed = {name: tuple(times) for name, times in beside.items() if times}
    notes = (*_made_for(loaded, provider), *notes_on(provider, evaluator.precisions))
    return DeviceRun(provider, first, tuple(seconds), nodes, outputs, timed, notes)


def _originals(original: Source, provider: str, threads: int) -> dict[str, Evaluator]:
    """Return the original on the same engine, as it is and in the types of the engine's choice."""
    named = {"the original": provider, **own_choices(provider)}
    return {
        name: Evaluator(original, emulate=False, providers=[engine], threads=threads)
        for name, engine in named.items()
    }


def _widen_feeds(feeds: Mapping[str, Any], others: Mapping[str, Evaluator]) -> dict[str, Any]:
    """Return feeds for the original, whose inputs are float32 where those are low."""
    specs = next(iter(others.values())).inputs
    return {
        name: widened(value) if isinstance(value, np.ndarray) else value
        for name, value in feeds.items()
        if name in specs
    }


def _time_run(evaluator: Evaluator, feeds: Mapping[str, Any]) -> tuple[float, dict[str, Any]]:
    start = time.perf_counter()
    outputs = evaluator.run(feeds)
    return time.perf_counter() - start, outputs
