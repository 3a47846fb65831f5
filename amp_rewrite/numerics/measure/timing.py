"""How long small models take on a provider, and the rates by which they do."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.errors import RunError
from amp_rewrite.graph.io.load import load
from amp_rewrite.numerics.measure.probes import parsed
from amp_rewrite.runtimes.engines import bound, open_session
from amp_rewrite.targets import of_provider

RUNS = 60
"""How often a session runs at most."""

_SECONDS = 0.5
"""How long a session runs at most, behind its first three runs."""

_FEWEST = 3
_EMPTY_SESSIONS = 5

LAYOUTS = ("Reorder", "ReorderInput", "ReorderOutput")
"""The operators by which engines change a layout at the ends of a model; inside there are few."""

NOT_RUN = float("inf")
"""The time of a model that the provider cannot run."""


@dataclass
class Clock:
    """Measures small models on a provider.

    Attributes:
        provider: An execution provider, or an engine.
        low: The low type that is measured beside float32.
        threads: Threads inside an operator; 0 is the engine's choice.
        sessions: How often each model is loaded.
    """

    provider: str
    low: DType
    threads: int = 0
    sessions: int = 4
    _empty: float | None = field(default=None, init=False)

    @property
    def types(self) -> tuple[DType, DType]:
        """The types that are compared."""
        return FLOAT32, self.low

    @property
    def narrow(self) -> tuple[str, ...]:
        """The operators that get the low type as their stash_type, as in rewritten models."""
        target = of_provider(self.provider)
        return () if target is None else target.narrow_stash

    def microseconds(
        self, models: Sequence[onnx.ModelProto], *, layouts: bool = False
    ) -> list[float]:
        """Return what models take, the least of several sessions each, which take turns.

        Args:
            models: What is run.
            layouts: Count what changes of layout take; else they are the ends', of which inside a
                model there are few.

        Returns:
            Microseconds, less what an empty model takes; `NOT_RUN` for what cannot be run.
        """
        least = [NOT_RUN] * len(models)
        failed = set[int]()
        for _ in range(self.sessions):
            for index, model in enumerate(models):
                if index in failed:
                    continue
                try:
                    least[index] = min(least[index], self._session(model, layouts=layouts))
                except RunError:
                    failed.add(index)
        empty = self._of_empty()
        return [max(0.0, time_ - empty) for time_ in least]

    def _of_empty(self) -> float:
        """Return what running a model takes in which nothing is to be done."""
        if self._empty is None:
            model = parsed("g (float[1] x) => (float[1] y) { y = Relu(x) }")
            times = (self._session(model, layouts=True) for _ in range(_EMPTY_SESSIONS))
            self._empty = min(times)
        return self._empty

    def _session(self, model: onnx.ModelProto, *, layouts: bool) -> float:
        """Return the least of the times of many runs, with or without what layouts take of it."""
        session = open_session(
            load(model), providers=[self.provider], threads=self.threads, profile=not layouts
        )
        feeds = {value.name: _feed(value) for value in model.graph.input}
        binding = bound(session, self.provider, feeds)
        times: list[float] = []
        begins = time.perf_counter()
        while len(times) < RUNS:
            start = time.perf_counter()
            if len(times) >= _FEWEST and start - begins > _SECONDS:
                break
            binding.run("a small model failed")
            times.append(time.perf_counter() - start)
        if layouts:
            return 1e6 * min(times)
        nodes = session.ran_nodes()
        taken = sum(node.microseconds for node in nodes if node.op in LAYOUTS)
        share = taken / max(1, sum(node.microseconds for node in nodes))
        return 1e6 * min(times) * (1 - share)


def _feed(value: onnx.ValueInfoProto) -> np.ndarray[Any, Any]:
    """Return floats between 0 and 1, or the numbers of rows in any order."""
    tensor_type = value.type.tensor_type
    shape = [dim.dim_value for dim in tensor_type.shape.dim]
    if tensor_type.elem_type == onnx.TensorProto.INT64:
        return np.random.default_rng(0).permutation(math.prod(shape)).reshape(shape)
    numbers = np.random.default_rng(0).random(shape, np.float32)
    return numbers.astype(onnx.helper.tensor_dtype_to_np_dtype(tensor_type.elem_type))


def fitted(sizes: Sequence[tuple[int, int]], times: Sequence[float]) -> dict[str, float]:
    """Return rates by which calls take what they took, with the least relative errors.

    Args:
        sizes: Elements and multiply-accumulates of each call.
        times: Microseconds of each call.
    """
    rows = np.array([(1.0, elements, macs) for elements, macs in sizes])
    scaled = rows / np.maximum(times, 1.0)[:, None]
    target = np.asarray(times) / np.maximum(times, 1.0)
    used = [0, 1, 2] if rows[:, 2].any() else [0, 1]
    while True:
        rates = np.linalg.lstsq(scaled[:, used], target, rcond=None)[0]
        if (rates >= 0).all() or len(used) == 1:
            break
        used.pop(int(np.argmin(rates * scaled[:, used].mean(0))))
    named = dict(zip(used, rates, strict=True))
    return {
        key: float(f"{max(0.0, named.get(index, 0.0)):.3g}")
        for index, key in enumerate(("call", "element", "mac"))
    }
