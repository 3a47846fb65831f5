"""Compare the values inside two models, a few at a time.

Values correspond if they have one name; a Cast's output corresponds to what is cast, so that the
casts that a rewrite adds are looked at as well. Bodies of Loop, Scan and If are not looked into.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import DType
from amp_rewrite.graph.added import origin
from amp_rewrite.graph.infer import infer_types
from amp_rewrite.numerics.batches import Array
from amp_rewrite.numerics.compare.distance import is_float
from amp_rewrite.numerics.compare.verify_report import Infinity, NodeGrowth

BUDGET_BYTES = 1 << 28
"""About how many bytes of values are held at once."""

_FIRST_CHUNK = 8
_LONGEST_CHUNK = 512
_MOST_NODES = 10
_FLOATS = frozenset({"tensor(float)", "tensor(float16)", "tensor(bfloat16)"})

Run = Callable[[Collection[str]], Mapping[str, Any]]
"""Names of values -> the values, for one feed."""


@dataclass
class _Deviation:
    """Sums over all feeds for one value."""

    error: float = 0.0
    norm: float = 0.0
    inf: int = 0
    nan: int = 0

    def add(self, original: Array, rewritten: Array) -> None:
        """Take one feed into account."""
        a, b = original.astype(np.float64), rewritten.astype(np.float64)
        finite = np.isfinite(a)
        self.inf += int(np.count_nonzero(finite & np.isinf(b)))
        self.nan += int(np.count_nonzero(finite & np.isnan(b)))
        both = finite & np.isfinite(b)
        a, b = a[both], b[both]
        self.norm += float(a @ a)
        self.error += float((b - a) @ (b - a))

    @property
    def relative(self) -> float:
        """|rewritten - original| / |original|."""
        if not self.norm:
            return math.inf if self.error else 0.0
        return math.sqrt(self.error / self.norm)


class IntermediateComparer:
    """Compares all values inside two models feed by feed.

    Attributes:
        pairs: Name in the rewritten model -> name in the original of what is compared.
    """

    def __init__(self, original: ir.Model, rewritten: ir.Model) -> None:
        """Find what can be compared."""
        self._held = 0
        self._graph = rewritten.graph
        self.pairs = counterparts(original, rewritten)
        self._deviations = {name: _Deviation() for name in self.pairs}

    def add(self, run_original: Run, run_rewritten: Run) -> None:
        """Take one feed into account.

        Args:
            run_original: Runs the original on it and returns the values with the names given.
            run_rewritten: Runs the rewritten model on it.
        """
        for chunk in self._chunks():
            before = run_original({self.pairs[name] for name in chunk})
            after = run_rewritten(set(chunk))
            self._held = sum(_nbytes(v) for v in (*before.values(), *after.values()))
            for name in chunk:
                a, b = before[self.pairs[name]], after[name]
                if a.shape == b.shape and is_float(a) and is_float(b):
                    self._deviations[name].add(a, b)

    def infinities(self) -> tuple[Infinity, ...]:
        """Return the values with new infinities or NaNs, in topological order."""
        found: list[Infinity] = []
        for name, deviation in self._deviations.items():
            if deviation.inf or deviation.nan:
                node = self._producers.get(name)
                place = ("", "") if node is None else (node.name or "", node.op_type)
                found.append(Infinity(name, *place, deviation.inf, deviation.nan))
        return tuple(found)

    def growth(self, low: DType) -> tuple[NodeGrowth, ...]:
        """Return the nodes that magnify the error most, the worst first."""
        errors = {name: d.relative for name, d in self._deviations.items()}
        rows: list[NodeGrowth] = []
        for node in self._graph:
            outputs = [errors[v.name] for v in node.outputs if v.name in errors]
            inputs = [errors[v.name] for v in node.inputs if v is not None and v.name in errors]
            if not outputs:
                continue
            error_in, error_out = max(inputs, default=0.0), max(outputs)
            growth = error_out / max(error_in, low.epsilon / 2)
            if growth > 1:
                rows.append(NodeGrowth(node.name or "", node.op_type, error_in, error_out, growth))
        return tuple(sorted(rows, key=lambda row: -row.growth)[:_MOST_NODES])

    @property
    def _producers(self) -> dict[str, ir.Node]:
        return {v.name: node for node in self._graph for v in node.outputs if v.name}

    def _chunks(self) -> Iterator[Sequence[str]]:
        """Yield names, as many at once as the previous chunk shows to fit the budget."""
        names, start, size = list(self.pairs), 0, _FIRST_CHUNK
        while start < len(names):
            chunk = names[start : start + size]
            yield chunk
            start += len(chunk)
            each = max(1, self._held // len(chunk))
            size = min(max(1, BUDGET_BYTES // each), 2 * size, _LONGEST_CHUNK)


def _nbytes(value: Any) -> int:
    return int(np.asarray(value).nbytes)


def counterparts(original: ir.Model, rewritten: ir.Model) -> dict[str, str]:
    """Return value name in the rewritten main graph -> that of the same value in the original.

    Only floating-point tensors that a node or an input makes are in it, in topological order.
    """
    types_before, types_after = infer_types(original), infer_types(rewritten)
    known = {v.name for v in _values(original.graph) if types_before.get(v) in _FLOATS}
    pairs: dict[str, str] = {}
    for value in _values(rewritten.graph):
        if value.name and types_after.get(value) in _FLOATS:
            match = _counterpart(value, known)
            if match is not None:
                pairs[value.name] = match
    return pairs


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    for node in graph:
        if node.op_type != "Constant":
            yield from node.outputs


def _counterpart(value: ir.Value, known: set[str | None]) -> str | None:
    """Return the name under which the original has a value, looking through casts."""
    current: ir.Value | None = value
    while current is not None:
        for name in (current.name, origin(current.name or "")):
            if name in known:
                return name
        node = current.producer()
        if node is None or node.op_type != "Cast" or node.domain != "":
            return None
        current = node.inputs[0]
    return None
