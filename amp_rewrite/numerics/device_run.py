"""Run a model on an execution provider: results, times, and which provider takes which node."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from amp_rewrite.errors import OptionError
from amp_rewrite.graph.io.load import Source
from amp_rewrite.numerics.emulate.evaluator import Evaluator
from amp_rewrite.runtimes.session import RanNode
from amp_rewrite.targets import CPU

VERSION = 1


@dataclass(frozen=True, slots=True, eq=False)
class DeviceRun:
    """What `run_on` found.

    Attributes:
        provider: What was asked for.
        first: Seconds of the first run, in which a provider may compile.
        seconds: Of each run after it.
        nodes: The nodes in the order of the first run; those inside subgraphs once a run.
        outputs: Output name -> array, or a list of arrays, of the last run.
    """

    provider: str
    first: float
    seconds: tuple[float, ...]
    nodes: tuple[RanNode, ...]
    outputs: Mapping[str, Any]

    @property
    def elsewhere(self) -> tuple[RanNode, ...]:
        """The nodes that another provider took."""
        return tuple(node for node in self.nodes if node.provider != self.provider)

    def to_json(self) -> str:
        """Return all but the outputs as JSON, version 1: keys may be added, never renamed."""
        content = {
            "version": VERSION,
            "provider": self.provider,
            "first": self.first,
            "seconds": list(self.seconds),
            "nodes": [asdict(node) for node in self.nodes],
        }
        return json.dumps(content, indent=1) + "\n"

    def to_text(self) -> str:
        """Return times, how many nodes each provider took, and the operators it took."""
        lines = [f"{self.provider}: first run {self.first:.3g} s"]
        if self.seconds:
            low, high = min(self.seconds), max(self.seconds)
            lines[0] += (
                f", then {np.median(self.seconds):.3g} s (median of {len(self.seconds)}, "
                f"{low:.3g} to {high:.3g})"
            )
        for provider in dict.fromkeys([self.provider, *(node.provider for node in self.nodes)]):
            taken = Counter(node.op for node in self.nodes if node.provider == provider)
            operators = ", ".join(f"{n} {op}" for op, n in taken.most_common())
            lines.append(f"{provider} took {taken.total()} nodes: {operators or 'none'}")
        return "\n".join(lines)


def run_on(
    model: Source,
    feeds: Mapping[str, Any],
    provider: str = CPU,
    *,
    repeat: int = 10,
    threads: int = 0,
) -> DeviceRun:
    """Run a model as it is, without emulation, on an execution provider.

    Args:
        model: A path, an onnx_ir model or a ModelProto; not modified.
        feeds: Input name -> array, of the model's types.
        provider: The execution provider.
        repeat: How often it runs after the first time.
        threads: Threads inside an operator; 0 is OMP_NUM_THREADS, or ONNX Runtime's choice.

    Raises:
        AmpError: The model or a feed is wrong, the provider cannot be used or cannot run it.
    """
    if repeat < 0:
        raise OptionError("impossible repeat", found=repeat, expected="at least 0")
    evaluator = Evaluator(model, emulate=False, providers=[provider], threads=threads, profile=True)
    first, outputs = _timed(evaluator, feeds)
    nodes = evaluator.ran_nodes()
    seconds: list[float] = []
    for _ in range(repeat):
        taken, outputs = _timed(evaluator, feeds)
        seconds.append(taken)
    return DeviceRun(provider, first, tuple(seconds), nodes, outputs)


def _timed(evaluator: Evaluator, feeds: Mapping[str, Any]) -> tuple[float, dict[str, Any]]:
    start = time.perf_counter()
    outputs = evaluator.run(feeds)
    return time.perf_counter() - start, outputs
