"""Compare the values inside two models, a few at a time.

Values correspond if they have one name; the output of a Cast that a rewrite added corresponds to
what is cast. Bodies of Loop, Scan and If are not looked into.

Evidence: an infinity that a later node absorbs (tests/numerics/compare/test_verify.py): without,
the model passes; with, it fails and the node is named.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.graph.added import origin
from amp_rewrite.graph.sizes import Shape
from amp_rewrite.numerics.compare.distance import ERROR, dot, is_float
from amp_rewrite.numerics.compare.masked_rows import MASKED
from amp_rewrite.numerics.compare.verify_records import Inside
from amp_rewrite.numerics.emulate.typed_model import TypedModel
from amp_rewrite.numerics.inputs.batches import Array

BUDGET_BYTES = 1 << 28
"""About how many bytes of values are held at once."""

_FIRST_CHUNK = 8
_FLOATS = frozenset({"tensor(float)", "tensor(float16)", "tensor(bfloat16)"})

Run = Callable[[Collection[str]], Mapping[str, Any]]
"""Names of values -> the values, for one feed."""


@dataclass
class Deviation:
    """Sums over all feeds for one value."""

    error: float = 0.0
    norm: float = 0.0
    inf: int = 0
    nan: int = 0
    positive: int = 0
    is_filled: bool = False
    """Whether the original holds minus infinities itself."""

    def add(self, original: Array, rewritten: Array) -> None:
        """Take one feed into account."""
        a, b = (v.astype(np.float64).ravel() for v in (original, rewritten))
        with np.errstate(invalid="ignore"):  # of infinities, which are counted below
            difference = b - a
            norm, error = dot(a, a), dot(difference, difference)
        if math.isfinite(norm + error) and (norm <= FLOAT16.overflow**2 or not _has_large(a)):
            self.norm += norm
            self.error += error
            return
        finite = np.isfinite(a)
        self.is_filled |= bool(np.isneginf(a).any())
        self.inf += int(np.count_nonzero(finite & np.isinf(b)))
        self.positive += int(np.count_nonzero(finite & np.isposinf(b)))
        self.nan += int(np.count_nonzero(finite & np.isnan(b)))
        both = finite & np.isfinite(b)
        a, b = a[both], b[both]
        if _has_large(a):
            counts = ~are_fills(a, b)
            a, b = a[counts], b[counts]
        self.norm += dot(a, a)
        self.error += dot(b - a, b - a)

    @property
    def is_lost(self) -> bool:
        """Whether elements that are finite in the original are not any more.

        A router that keeps the best groups fills the others with minus infinity. Where a rounding
        chooses another group, what was finite is filled now.
        """
        return bool(self.nan or self.positive or (self.inf and not self.is_filled))

    @property
    def relative(self) -> float:
        """|rewritten - original| / |original|."""
        if not self.norm:
            return math.inf if self.error else 0.0
        return math.sqrt(self.error / self.norm)


def _has_large(a: Array) -> bool:
    return bool(a.size and max(-a.min(), a.max()) > FLOAT16.overflow)


def are_fills(a: Array, b: Array) -> Array:
    """Tell which elements are what a mask fills with, a number that float16 lacks.

    The lowest float32 number becomes -32752 or -65504, an error of 1 that means nothing: both are
    zero after Softmax. So does the largest one, before its sign is changed or among distances.
    What overflows in a computation is infinite instead. `a`, the original's numbers, are finite.
    """
    return (np.abs(a) > FLOAT16.overflow) & (np.sign(a) * b > -MASKED)


def chunked(names: Iterable[str], sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Yield as many names at once as the budget allows, by how many bytes each value takes."""
    chunk: list[str] = []
    held = 0
    for name in names:
        held += 2 * sizes.get(name, 0)
        if chunk and held > BUDGET_BYTES:
            yield chunk
            chunk, held = [], 2 * sizes.get(name, 0)
        chunk.append(name)
    if chunk:
        yield chunk


def read_in_parts(names: Sequence[str], *runs: Run) -> Iterator[tuple[Mapping[str, Any], ...]]:
    """Yield values of models, as many at once as the budget allows by how large others were."""
    count = _FIRST_CHUNK
    while names:
        results = tuple(run(names[:count]) for run in runs)
        yield results
        each = max(1, sum(map(_nbytes, results)) // count)
        names, count = names[count:], min(max(1, BUDGET_BYTES // each), 2 * count)


class IntermediateComparer:
    """Compares all values inside two models feed by feed.

    Attributes:
        names: The floats of the original's main graph.
        pairs: Name in the rewritten model -> name in the original of the same value.
        sizes: Name in the rewritten model -> bytes that it takes in the original.
        shapes: Name in the original -> the shape of the value for the first feed.
    """

    def __init__(self, original: TypedModel, rewritten: TypedModel) -> None:
        """Find what can be compared."""
        self._graph = rewritten.model.graph
        self.names = tuple(floats_of(original))
        self.pairs = counterparts(original, rewritten)
        self.sizes: dict[str, int] = {}
        self.shapes: dict[str, Shape] = {}
        self._measured: dict[str, Shape] | None = None
        self._deviations = {name: Deviation() for name in self.pairs}

    def fresh(self) -> IntermediateComparer:
        """Return a comparer of the same models that has seen nothing."""
        other = copy.copy(self)
        other._deviations = {name: Deviation() for name in self.pairs}
        return other

    def measure(self, feeds: Mapping[str, Any], run_original: Run) -> None:
        """Note how large values are, so that the emulated model, which is slow, runs once."""
        arrays = ((name, value) for name, value in feeds.items() if isinstance(value, np.ndarray))
        shapes: dict[str, Shape] = {name: array.shape for name, array in arrays}
        if shapes == self._measured:
            return
        bytes_of: dict[str, int] = {}
        for (values,) in read_in_parts(list(dict.fromkeys(self.pairs.values())), run_original):
            bytes_of |= {name: int(np.asarray(value).nbytes) for name, value in values.items()}
            for name, value in values.items():
                self.shapes.setdefault(name, np.shape(value))
        self.sizes = {name: bytes_of[before] for name, before in self.pairs.items()}
        self._measured = shapes

    @property
    def runs(self) -> int:
        """How many runs of the rewritten model all values take."""
        return sum(1 for _ in chunked(self.pairs, self.sizes))

    def at_once(self) -> Sequence[str]:
        """Return the first values of the rewritten model, as many as can be held at once."""
        return next(chunked(self.pairs, self.sizes), ())

    def add(self, run_original: Run, run_rewritten: Run) -> None:
        """Take one feed into account."""
        for chunk in chunked(self.pairs, self.sizes):
            before = run_original({self.pairs[name] for name in chunk})
            after = run_rewritten(set(chunk))
            for name in chunk:
                a, b = before[self.pairs[name]], after[name]
                if a.shape == b.shape and is_float(a) and is_float(b):
                    self._deviations[name].add(a, b)

    def departure(self) -> Inside | None:
        """Return the first value with new infinities or NaNs, else the first that is far off."""
        far = (n for n, d in self._deviations.items() if d.relative > ERROR)
        name = next(iter(self._overflows()), None) or next(far, None)
        return None if name is None else self._inside(name)

    def infinities(self) -> tuple[Inside, ...]:
        """Return the values with new infinities or NaNs, in topological order."""
        return tuple(map(self._inside, self._overflows()))

    def _overflows(self) -> list[str]:
        return [name for name, deviation in self._deviations.items() if deviation.is_lost]

    def _inside(self, name: str) -> Inside:
        deviation, node = self._deviations[name], self._producers.get(name)
        place = ("", "") if node is None else (node.name or "", node.op_type)
        return Inside(name, *place, deviation.relative, deviation.inf, deviation.nan)

    def errors(self) -> dict[str, float]:
        """Return |rewritten - original| / |original| by name in the rewritten model."""
        return {name: d.relative for name, d in self._deviations.items() if d.norm}

    @cached_property
    def _producers(self) -> dict[str, ir.Node]:
        return {v.name: node for node in self._graph for v in node.outputs if v.name}


def known_or(known: Mapping[str, Any], run: Run) -> Run:
    """Return what looks values up, and runs a model where some are missing."""
    return lambda names: known if known.keys() >= set(names) else run(names)


def _nbytes(values: Mapping[str, Any]) -> int:
    return sum(int(np.asarray(value).nbytes) for value in values.values())


def floats_of(model: TypedModel) -> list[str]:
    """Return the floating-point tensors of the main graph that a node or an input makes."""
    values = _values(model.model.graph)
    return [v.name for v in values if v.name and model.types.get(v) in _FLOATS]


def counterparts(original: TypedModel, rewritten: TypedModel) -> dict[str, str]:
    """Return value name in the rewritten main graph -> that of the same value in the original.

    They are floating-point tensors that a node or an input makes, in topological order.
    """
    names = set(floats_of(original))
    pairs: dict[str, str] = {}
    for value in _values(rewritten.model.graph):
        if value.name and rewritten.types.get(value) in _FLOATS:
            match = _counterpart(value, names)
            if match is not None:
                pairs[value.name] = match
    return pairs


def _counterpart(value: ir.Value, names: Collection[str | None]) -> str | None:
    """Return the name under which the original has a value, looking through casts."""
    current: ir.Value | None = value
    while current is not None:
        for name in (current.name, origin(current.name or "")):
            if name in names:
                return name
        node = current.producer()
        if node is None or node.op_type != "Cast" or node.domain != "":
            return None
        current = node.inputs[0]
    return None


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    for node in graph:
        if node.op_type != "Constant":
            yield from node.outputs
