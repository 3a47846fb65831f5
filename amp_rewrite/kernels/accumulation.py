"""Types that kernels add up in: lists/kernels/accumulation_<provider>_<version>.json as a table.

A table is made by tools/measure_accumulation.py. Its JSON, version 1:

    {"version": 1, "runtime": "...", "provider": "...", "source": "...",
     "sums": {"<domain>": {"<op>": [{"type": "float16", "chunk": 1, "lanes": 1, "when": {},
      "fused": false}]}},
     "steps": {"<domain>": {"<op>": "float16"}},
     "indices": {"<domain>": {"<op>": {"type": "float16", "source": "..."}}},
     "variances": {"<domain>": {"<op>": {"type": "float16", "source": "..."}}}}

The first row of an operator whose `when` holds is the one. `indices` and `variances` were reported,
not measured by the tool; each says where. Without a table, or a row, all that is known of a
target's sums is `Target.accumulates_in`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from amp_rewrite import targets
from amp_rewrite.dtypes import BFLOAT16, FLOAT16, FLOAT32, DType
from amp_rewrite.kernels.kernel_table import by_operator, check_format, shipped, versions

FORMAT_VERSION = 1

Part = Literal["indices", "variances"]
"""A result that a kernel computes additionally."""

_PREFIX = "accumulation_"

_TYPES = {dtype.name: dtype for dtype in (FLOAT16, BFLOAT16, FLOAT32)}


@dataclass(frozen=True, slots=True)
class SumOrder:
    """The order in which a kernel adds up; each sum and each product is rounded to `type`.

    Attributes:
        type: The type of running sums.
        chunk: The number of terms that are added up on their own before they join the running sum,
            if the number of all terms is a multiple of it.
        lanes: The number of running sums, each of every lanes-th term; they are added up at the end
            in pairs, the first half and the second.
        when: (attribute, value) pairs that the node must have; an absent one counts as 0.
        fused: Whether a product and the sum that it joins are rounded once (fused multiply-add).
    """

    type: DType
    chunk: int = 1
    lanes: int = 1
    when: tuple[tuple[str, int], ...] = ()
    fused: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class AccumulationTable:
    """The types that the kernels of one execution provider add up in, by (domain, op).

    Attributes:
        runtime: The runtime in words.
        sums: The rows of an operator; those that add in float32 are there as well.
        steps: The type that each step of an operator of one element is rounded to.
        indices: The type in which a kernel computes indices of its output.
        variances: The type in which a kernel keeps the variance it divides by.
    """

    provider: str
    version: str
    runtime: str
    sums: Mapping[tuple[str, str], tuple[SumOrder, ...]]
    steps: Mapping[tuple[str, str], DType] = field(default_factory=dict[tuple[str, str], DType])
    indices: Mapping[tuple[str, str], DType] = field(default_factory=dict[tuple[str, str], DType])
    variances: Mapping[tuple[str, str], DType] = field(default_factory=dict[tuple[str, str], DType])


@cache
def load(provider: str | None) -> AccumulationTable | None:
    """Return the newest table of a provider, read once per process; None if there is none."""
    dates = versions(_PREFIX + provider) if provider is not None else ()
    if not dates:
        return None
    return shipped(
        "kernels",
        f"{_PREFIX}{provider}_{dates[-1]}",
        "accumulation",
        lambda data: parse(data, dates[-1]),
        "reinstall the package or remake it with tools/measure_accumulation.py",
    )


def _tables(target: targets.Target) -> Iterator[AccumulationTable]:
    yield from filter(None, (load(part.provider) for part in target.parts or (target,)))


def operators_adding_in(target: targets.Target, dtype: DType) -> frozenset[tuple[str, str]]:
    """Return the operators, (domain, op), that a target was measured to keep sums of in a type."""
    rows = (item for table in _tables(target) for item in table.sums.items())
    return frozenset(op for op, orders in rows if any(order.type is dtype for order in orders))


def operators_computing_in(
    target: targets.Target, dtype: DType, part: Part
) -> frozenset[tuple[str, str]]:
    """Return the operators that compute indices, or variances, in a type, on a part of a target."""
    tables = (t.indices if part == "indices" else t.variances for t in _tables(target))
    return frozenset(op for types in tables for op, type_ in types.items() if type_ is dtype)


def operators_adding_fused(target: targets.Target, dtype: DType) -> frozenset[tuple[str, str]]:
    """Return those that always round a product and the sum that it joins once."""
    rows = [(op, row) for t in _tables(target) for op, rows in t.sums.items() for row in rows]
    apart = {op for op, row in rows if row.type is dtype and not row.fused}
    return frozenset(op for op, row in rows if row.type is dtype and row.fused) - apart


def parse(data: Mapping[str, Any], version: str) -> AccumulationTable:
    """Return the table in a decoded JSON file."""
    check_format(data, "accumulation", FORMAT_VERSION)
    sums = by_operator(data["sums"], lambda rows: tuple(map(_order, rows)))
    steps = by_operator(data.get("steps", {}), lambda type_: _TYPES[type_])
    inside = [
        by_operator(data.get(part, {}), lambda row: _TYPES[row["type"]])
        for part in ("indices", "variances")
    ]
    return AccumulationTable(data["provider"], version, data["runtime"], sums, steps, *inside)


def _order(row: Mapping[str, Any]) -> SumOrder:
    chunk, lanes = row.get("chunk", 1), row.get("lanes", 1)
    when, fused = tuple(row.get("when", {}).items()), bool(row.get("fused", False))
    return SumOrder(_TYPES[row["type"]], chunk, lanes, when, fused)
