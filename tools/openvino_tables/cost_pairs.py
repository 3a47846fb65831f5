"""What casts between two operators of OpenVINO cost, and what computing both together saves."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
from cost_calls import parsed, weight
from cost_timing import TYPES, fitted, microseconds

from amp_rewrite.dtypes import DType

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

_FILTER = (CHANNELS, CHANNELS, 1, 1)


def _shape(n: int) -> list[int]:
    return [1, CHANNELS, n, n]


def between(first: str, second: str, types: tuple[DType, DType], n: int) -> onnx.ModelProto:
    """Return a model of two operators, with a Cast between them if their types differ."""
    given, made = types
    nodes = [f"a = {ENDS[first].format('x')}"] if first != "none" else []
    value = "a" if nodes else "x"
    if given is not made:
        nodes.append(f"c = Cast<to = {made.number}>({value})")
        value = "c"
    if second != "none":
        nodes.append(f"y = {ENDS[second].format(value)}".replace("w)", "v)").replace("k)", "l)"))
        nodes[-1] = nodes[-1].replace(", s, s)", ", t, t)").replace(", g" * 4, ", h" * 4)
    else:
        nodes[-1] = "y" + nodes[-1][1:]
    model = parsed(
        f"g ({given.onnx}{_shape(n)} x) => ({made.onnx}{_shape(n)} y) {{ {' '.join(nodes)} }}"
    )
    reads = {name for node in model.graph.node for name in node.input}
    for name, shape, dtype in (
        *(("w", (n, n), given), ("s", (n,), given), ("v", (n, n), made), ("t", (n,), made)),
        *(("k", _FILTER, given), ("l", _FILTER, made)),
        *(("g", (CHANNELS,), given), ("h", (CHANNELS,), made)),
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


def pairs(options: argparse.Namespace) -> Pairs:
    """Measure what casts between two operators cost, and what computing the two together saves."""
    found = Pairs([], [])
    families = [family for family in ENDS if family not in ("none", _APART)]
    alone = {
        (family, dtype, n): taken
        for n in SIDES
        for family in families
        for dtype, taken in zip(TYPES, _apart(family, n, options), strict=True)
    }
    for first in families:
        for second in families:
            parted = [_parted(first, second, n, alone, options) for n in SIDES]
            for made in TYPES[::-1]:
                cost = _fitted([max(0.0, cast) for cast, *_ in parted])
                ends = {"producer": first, "consumer": second}
                found.casts.append({"to": made.name, **ends, **cost})
            if (first, second) in PAIRS:
                saves = {
                    dtype.name: _fitted([max(0.0, saved[at]) for saved in parted])
                    for at, dtype in enumerate(TYPES, start=1)
                }
                found.joins.append({"producer": first, "consumer": second, "saves": saves})
    found.casts.extend(_casts_at_ends(families, alone, options))
    found.casts.extend(_other_casts(families, options))
    return found


def _parted(
    first: str,
    second: str,
    n: int,
    alone: dict[tuple[str, DType, int], float],
    options: argparse.Namespace,
) -> tuple[float, float, float]:
    """Return what a cast between two operators costs, and what a join saves in either type.

    Two casts, one each way, and what the joins save in both types make together what parting the
    two costs; if the joins alone would save more than that, both save so much less.
    """
    full, low = TYPES
    kinds = ((full, low), (low, full), (full, full), (low, low))
    models = [between(first, second, kind, n) for kind in kinds]
    down, up, *together = microseconds(models, options, layouts=True)
    whole = max(0.0, down + up - sum(together))
    if (first, second) not in PAIRS:
        return whole / 2, 0.0, 0.0
    saved = [
        max(0.0, alone[first, dtype, n] + alone[second, dtype, n] - taken)
        for dtype, taken in zip(TYPES, together, strict=True)
    ]
    less = max(0.0, sum(saved) - whole) / 2
    return (whole - min(sum(saved), whole)) / 2, saved[0] - less, saved[1] - less


def _apart(family: str, n: int, options: argparse.Namespace) -> list[float]:
    """Return what an operator takes alone, by type."""
    models = [between("none", family, (dtype, dtype), n) for dtype in TYPES]
    return microseconds(models, options, layouts=True)


def _casts_at_ends(
    families: Sequence[str],
    alone: dict[tuple[str, DType, int], float],
    options: argparse.Namespace,
) -> Iterator[dict[str, Any]]:
    """Yield the rows of casts at the ends of a model."""
    for given, made in (TYPES, TYPES[::-1]):
        for family in families:
            for ends, dtype in ((("none", family), made), ((family, "none"), given)):
                models = [between(*ends, (given, made), n) for n in SIDES]
                taken = microseconds(models, options, layouts=True)
                times = [t - alone[family, dtype, n] for t, n in zip(taken, SIDES, strict=True)]
                cost = _fitted([max(0.0, time_) for time_ in times])
                yield {"to": made.name, "producer": ends[0], "consumer": ends[1], **cost}


def _other_casts(families: Sequence[str], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the rows of casts between other operators: the mean beside what takes none into it."""
    pairs = [(_APART, family) for family in (*families, _APART)]
    pairs += [(family, _APART) for family in families]
    found = [[_parted(*ends, n, {}, options)[0] for ends in pairs] for n in SIDES]
    cost = _fitted([statistics.fmean(max(0.0, cast) for cast in casts) for casts in found])
    for made in TYPES[::-1]:
        yield {"to": made.name, "producer": "*", "consumer": "*", **cost}


def _fitted(times: Sequence[float]) -> dict[str, float]:
    """Return the rates of what took so long for the value between two operators."""
    row = fitted([(CHANNELS * n * n, 0) for n in SIDES], times)
    return {key: row[key] for key in ("call", "element")}
