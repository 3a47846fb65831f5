"""What casts between two operators cost, and what computing both together saves."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from amp_rewrite.dtypes import DType
from amp_rewrite.errors import RunError
from amp_rewrite.numerics.measure.probes import parsed, weight, with_stash
from amp_rewrite.numerics.measure.timing import NOT_RUN, Clock, fitted

ENDS = {
    "none": "",
    "product": "MatMul({}, w)",
    "convolution": "Conv({}, k)",
    "elementwise": "Relu({})",
    "transcendental": "Tanh({})",
    "softmax": "Softmax({})",
    "normalization": "LayerNormalization({}, s, s)",
    "batch normalization": "BatchNormalization({}, g, g, g, g)",
    "transpose": "Transpose<perm = [0, 1, 3, 2]>({})",
}
"""Family -> an operator that keeps the shape of what stands beside a cast or in a join."""

_APART = "transpose"
"""What no cast is taken into: what casts cost beside it in the mean, others do, too."""

PAIRS = (
    *(("product", "elementwise"), ("product", "transcendental"), ("elementwise", "elementwise")),
    *(("convolution", "elementwise"), ("convolution", "transcendental")),
    *(("convolution", "batch normalization"), ("batch normalization", "elementwise")),
    *(("batch normalization", "transcendental"), ("elementwise", "batch normalization")),
    *(("elementwise", "transcendental"), ("transcendental", "elementwise")),
    *(("normalization", "elementwise"), ("elementwise", "normalization")),
    *(("softmax", "elementwise"), ("elementwise", "softmax")),
)
"""The pairs of families of which it is measured what computing them together saves."""

SIDES, CHANNELS = (16, 48), 32
"""What is between two operators has the shape (1, CHANNELS, n, n)."""

LOOKUPS, LOOKUP_WIDTH = (64, 512), 512
"""How many rows of a table are looked up, and their length: embeddings of a short and a long text.
"""

_FILTER = (CHANNELS, CHANNELS, 1, 1)


def _shape(n: int) -> list[int]:
    return [1, CHANNELS, n, n]


def between(
    first: str, second: str, types: tuple[DType, DType], n: int, narrow: Collection[str] = ()
) -> onnx.ModelProto:
    """Return a model of two operators, with a Cast between them if their types differ."""
    source, target = types
    nodes = [f"a = {with_stash(ENDS[first], source, narrow).format('x')}"]
    nodes = nodes if first != "none" else []
    value = "a" if nodes else "x"
    if source is not target:
        nodes.append(f"c = Cast<to = {target.number}>({value})")
        value = "c"
    if second != "none":
        body = with_stash(ENDS[second], target, narrow).format(value)
        nodes.append(f"y = {body}".replace("w)", "v)").replace("k)", "l)"))
        nodes[-1] = nodes[-1].replace(", s, s)", ", t, t)").replace(", g" * 4, ", h" * 4)
    else:
        nodes[-1] = "y" + nodes[-1][1:]
    model = parsed(
        f"g ({source.onnx}{_shape(n)} x) => ({target.onnx}{_shape(n)} y) {{ {' '.join(nodes)} }}"
    )
    reads = {name for node in model.graph.node for name in node.input}
    for name, shape, dtype in (
        *(("w", (n, n), source), ("s", (n,), source), ("v", (n, n), target), ("t", (n,), target)),
        *(("k", _FILTER, source), ("l", _FILTER, target)),
        *(("g", (CHANNELS,), source), ("h", (CHANNELS,), target)),
    ):
        if name in reads:
            model.graph.initializer.append(weight(name, shape, dtype))
    return model


@dataclass(frozen=True, slots=True)
class Pairs:
    """What was measured of two operators, one behind the other.

    Attributes:
        casts: The rows of casts.
        joins: The rows of joins.
    """

    casts: list[dict[str, Any]]
    joins: list[dict[str, Any]]


def pairs(clock: Clock, progress: Callable[..., None]) -> Pairs:
    """Measure what casts between two operators cost, and what computing the two together saves.

    Families that the provider does not run in both types are left out.
    """
    measured = Pairs([], [])
    alone = {
        (family, dtype, n): taken
        for n in SIDES
        for family in ENDS
        if family not in ("none", _APART)
        for dtype, taken in zip(clock.types, _measure_alone(family, n, clock), strict=True)
    }
    lacking = {family for (family, *_), taken in alone.items() if taken == NOT_RUN}
    families = [f for f in ENDS if f not in ("none", _APART) and f not in lacking]
    for number, first in enumerate(families):
        progress(number, len(families), f"casts behind {first}")
        for second in families:
            parted = _of_sides(first, second, alone, clock)
            if parted is None:
                continue
            for target in clock.types[::-1]:
                cost = _fit_rates([max(0.0, cast) for cast, *_ in parted])
                ends = {"producer": first, "consumer": second}
                measured.casts.append({"to": target.name, **ends, **cost})
            if (first, second) in PAIRS:
                saves = {
                    dtype.name: _fit_rates([max(0.0, saved[at]) for saved in parted])
                    for at, dtype in enumerate(clock.types, start=1)
                }
                measured.joins.append({"producer": first, "consumer": second, "saves": saves})
    measured.casts.extend(_casts_at_ends(families, alone, clock))
    measured.casts.extend(lookup_casts(clock))
    measured.casts.extend(other_casts(families, clock))
    return measured


def _of_sides(
    first: str, second: str, alone: Mapping[tuple[str, DType, int], float], clock: Clock
) -> list[tuple[float, float, float]] | None:
    """Return what `_measure_parting` says of each of `SIDES`; None if it does not run there."""
    rows = [_measure_parting(first, second, n, alone, clock) for n in SIDES]
    return None if any(map(math.isnan, (number for row in rows for number in row))) else rows


def _measure_parting(
    first: str,
    second: str,
    n: int,
    alone: Mapping[tuple[str, DType, int], float],
    clock: Clock,
) -> tuple[float, float, float]:
    """Return what a cast between two operators costs, and what a join saves in either type.

    Two casts, one each way, and what the joins save in both types make together what parting the
    two costs; if the joins alone would save more than that, both save so much less. What cannot
    be run gives NaN.
    """
    full, low = clock.types
    kinds = ((full, low), (low, full), (full, full), (low, low))
    models = [between(first, second, kind, n, clock.narrow) for kind in kinds]
    taken = clock.microseconds(models, layouts=True)
    if NOT_RUN in taken:
        return math.nan, math.nan, math.nan
    down, up, *together = taken
    whole = max(0.0, down + up - sum(together))
    if (first, second) not in PAIRS:
        return whole / 2, 0.0, 0.0
    saved = [
        max(0.0, alone[first, dtype, n] + alone[second, dtype, n] - taken)
        for dtype, taken in zip(clock.types, together, strict=True)
    ]
    less = max(0.0, sum(saved) - whole) / 2
    return (whole - min(sum(saved), whole)) / 2, saved[0] - less, saved[1] - less


def _measure_alone(family: str, n: int, clock: Clock) -> list[float]:
    """Return what an operator takes alone, by type."""
    models = [between("none", family, (dtype, dtype), n, clock.narrow) for dtype in clock.types]
    return clock.microseconds(models, layouts=True)


def _casts_at_ends(
    families: Sequence[str],
    alone: Mapping[tuple[str, DType, int], float],
    clock: Clock,
) -> Iterator[dict[str, Any]]:
    """Yield the rows of casts at the ends of a model."""
    for source, target in (clock.types, clock.types[::-1]):
        for family in families:
            for ends, dtype in ((("none", family), target), ((family, "none"), source)):
                models = [between(*ends, (source, target), n, clock.narrow) for n in SIDES]
                taken = clock.microseconds(models, layouts=True)
                if NOT_RUN in taken:
                    continue
                times = [t - alone[family, dtype, n] for t, n in zip(taken, SIDES, strict=True)]
                cost = _fit_rates([max(0.0, time_) for time_ in times])
                yield {"to": target.name, "producer": ends[0], "consumer": ends[1], **cost}


def lookup_casts(clock: Clock) -> Iterator[dict[str, Any]]:
    """Yield the rows of casts behind a look-up in a table.

    OpenVINO takes a Cast to float32 into the look-up, which then takes two to three times as long.
    As between other operators, half of that counts for the Cast of either direction.
    """
    sizes = [(count * LOOKUP_WIDTH, 0) for count in LOOKUPS]
    costs: list[float] = []
    for count in LOOKUPS:
        full, low = clock.types
        kinds = ((full, low), (low, full), (full, full), (low, low))
        taken = clock.microseconds([_lookup(kind, count) for kind in kinds], layouts=True)
        if NOT_RUN in taken:
            return
        down, up, *together = taken
        costs.append(max(0.0, down + up - sum(together)) / 2)
    row = fitted(sizes, costs)
    for target in clock.types[::-1]:
        ends = {"producer": "gather", "consumer": "*"}
        yield {"to": target.name, **ends, "call": row["call"], "element": row["element"]}


def _lookup(types: tuple[DType, DType], count: int) -> onnx.ModelProto:
    """Return a look-up of so many rows and an addition, with a Cast between if types differ."""
    source, target = types
    shape, table = [count, LOOKUP_WIDTH], (2 * count, LOOKUP_WIDTH)
    cast = f"c = Cast<to = {target.number}>(r)" if source is not target else "c = Identity(r)"
    model = parsed(
        f"g (int64[{count}] i, {target.onnx}{shape} x) => ({target.onnx}{shape} y) "
        f"{{ r = Gather(t, i) {cast} y = Add(c, x) }}"
    )
    model.graph.initializer.append(weight("t", table, source))
    return model


def other_casts(families: Sequence[str], clock: Clock) -> Iterator[dict[str, Any]]:
    """Yield the rows of casts between other operators: the mean beside what takes none into it."""
    pairs = [(_APART, family) for family in (*families, _APART)]
    pairs += [(family, _APART) for family in families]
    parted = [rows for ends in pairs if (rows := _of_sides(*ends, {}, clock)) is not None]
    if not parted:
        return
    by_side = zip(*([max(0.0, cast) for cast, *_ in sides] for sides in parted), strict=True)
    cost = _fit_rates([statistics.fmean(casts) for casts in by_side])
    for target in clock.types[::-1]:
        yield {"to": target.name, "producer": "*", "consumer": "*", **cost}


def single_casts(clock: Clock) -> Iterator[dict[str, Any]]:
    """Yield a row of casts for either direction: what a model takes that is nothing else.

    Raises:
        RunError: The provider runs no Cast between the types.
    """
    for source, target in (clock.types, clock.types[::-1]):
        models = [_cast(source, target, n) for n in SIDES]
        taken = clock.microseconds(models, layouts=True)
        if NOT_RUN in taken:
            raise RunError(
                f"no Cast from {source.name} to {target.name} runs", where=clock.provider
            )
        yield {"to": target.name, "producer": "*", "consumer": "*", **_fit_rates(taken)}


def _cast(source: DType, target: DType, n: int) -> onnx.ModelProto:
    ends = f"({source.onnx}{_shape(n)} x) => ({target.onnx}{_shape(n)} y)"
    return parsed(f"g {ends} {{ y = Cast<to = {target.number}>(x) }}")


def _fit_rates(times: Sequence[float]) -> dict[str, float]:
    """Return the rates of what took so long for the value between two operators."""
    row = fitted([(CHANNELS * n * n, 0) for n in SIDES], times)
    return {key: row[key] for key in ("call", "element")}
