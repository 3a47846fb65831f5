"""What operators and casts take on a target: lists/costs/<name>.json as a frozen table.

Its JSON, version 1; all times are microseconds:

    {"version": 1, "runtime": "openvino 2026.4.1", "device": "AMD EPYC 9B14, 2 threads",
     "source": "tools/measure_costs.py",
     "families": {"product": ["MatMul", "Gemm"], "elementwise": ["Add", "com.microsoft::Gelu"]},
     "with_products": ["Attention", "Gelu"], "one_type": ["RotaryEmbedding"],
     "costs": [{"family": "product", "type": "float32", "from": 0,
                "call": 2.5, "element": 1.2e-4, "mac": 1.1e-5}, ...],
     "casts": [{"to": "bfloat16", "producer": "*", "consumer": "*", "call": 2, "element": 1e-4}],
     "joins": [{"producer": "product", "consumer": "elementwise",
                "saves": {"float32": {"call": 1, "element": 1e-4}, "bfloat16": {...}}}]}

`families` name operators as traits.py does, and groups of lists/fusions and layouts by pattern.
`with_products`, which may be left out, are patterns of values/patterns whose nodes are computed,
and rounded, together with the products among them or the one in front; those of `one_type`, which
may be left out as well, are one operator there if all of their nodes have one type. A row of
`costs` is for nodes of a family that compute in a type: what a call takes, plus what each element
takes that it reads or writes, weights included, plus what each multiply-accumulate takes. Of the
rows of a family and type the last counts whose `from` is not above the size of the node, its
multiply-accumulates if it has any, else its elements. An operator of no family, or a family without
rows for both types, takes as long in either type. The first row of `casts` counts that fits: "*" is
any family and operators of none, "none" an input or an output of the model. A row of `joins` says
that a node of one family is computed together with what makes its input, if nothing else reads
that; `saves` is what the two take less than one after the other, by the element of the value
between them, and is lost where they have different types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from amp_rewrite import targets
from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.kernels.kernel_table import check_format, shipped

FORMAT_VERSION = 1

ANY, NONE = "*", "none"
"""What stands in place of a family: any of them, or none; and an end of the model."""


@dataclass(frozen=True, slots=True)
class Rate:
    """What something takes, in microseconds.

    Attributes:
        call: However small it is.
        element: For each element that it reads or writes; of a cast or join, of the value.
        mac: For each multiply-accumulate.
        least: The smallest size, in multiply-accumulates or else in elements, that this is true of.
    """

    call: float = 0.0
    element: float = 0.0
    mac: float = 0.0
    least: int = 0

    def takes(self, elements: int, macs: int = 0) -> float:
        """Return the microseconds for a number of elements and of multiply-accumulates."""
        return self.call + self.element * elements + self.mac * macs


@dataclass(frozen=True, slots=True)
class CastRate:
    """What a Cast takes between an operator of one family and one of another.

    Attributes:
        to: The name of the type that it gives.
        producer: The family of what makes the value, "*" for any.
        consumer: The family of what reads the cast, "*" for any.
        rate: What it takes.
    """

    to: str
    producer: str
    consumer: str
    rate: Rate


NOTHING = Rate()


@dataclass(frozen=True, slots=True, eq=False)
class CostTable:
    """What was measured on a device.

    Attributes:
        name: What the table is called.
        runtime: The runtime in words, with its version.
        device: The device in words.
        source: What measured it.
        families: Operator, or pattern of a fused group -> its family.
        with_products: The patterns that are computed together with a product.
        one_type: The patterns that are one operator if their nodes have one type.
        rates: (family, name of a type) -> the rates by ascending size.
        casts: The rates of casts; the first that fits counts.
        joins: (family of the producer, family of the consumer, name of a type) -> what they save.
    """

    name: str
    runtime: str
    device: str
    source: str
    families: Mapping[str, str]
    with_products: frozenset[str]
    one_type: frozenset[str]
    rates: Mapping[tuple[str, str], tuple[Rate, ...]]
    casts: tuple[CastRate, ...]
    joins: Mapping[tuple[str, str, str], Rate]

    def family(self, operator: str) -> str:
        """Return the family of an operator or pattern, "*" if it has none."""
        return self.families.get(operator, ANY)

    def takes_low(self, low: DType) -> bool:
        """Tell whether a low type was measured."""
        return any(type_ == low.name for _, type_ in self.rates)

    def node(self, family: str, dtype: DType, elements: int, macs: int = 0) -> float:
        """Return the microseconds of a node that reads and writes `elements`, weights included."""
        size, found = macs or elements, NOTHING
        for rate in self.rates.get((family, dtype.name), ()):
            if rate.least > size:
                break
            found = rate
        return found.takes(elements, macs)

    def is_weighed(self, family: str, low: DType) -> bool:
        """Tell whether it was measured what a family takes in float32 and in a low type."""
        return (family, low.name) in self.rates and (family, FLOAT32.name) in self.rates

    def cast(self, to: DType, producer: str, consumer: str) -> Rate:
        """Return what a Cast takes, by the families of what makes its input and reads its output.

        Args:
            to: The type that it gives.
            producer: A family; "none" for an input of the model, "*" for operators of no family.
            consumer: A family; "none" for an output of the model, "*" for operators of no family.
        """
        for row in self.casts:
            if (
                row.to == to.name
                and row.producer in (ANY, producer)
                and row.consumer in (ANY, consumer)
            ):
                return row.rate
        return NOTHING

    def join(self, producer: str, consumer: str, dtype: DType) -> Rate | None:
        """Return what two operators save that are computed together; None if they are not."""
        return self.joins.get((producer, consumer, dtype.name))


def of_target(target: targets.Target, low: DType) -> CostTable | None:
    """Return what is known of a target's costs in a low type; None if nothing is.

    Raises:
        KernelTableError: The table cannot be read.
    """
    table = None if target.costs is None else load(target.costs)
    return table if table is not None and table.takes_low(low) else None


@cache
def load(name: str) -> CostTable:
    """Return a table that is shipped, read once per process.

    Raises:
        KernelTableError: There is no such table, or it cannot be read.
    """
    return shipped("costs", name, "costs", lambda data: parse(data, name))


def parse(data: Mapping[str, Any], name: str) -> CostTable:
    """Return the table that a decoded JSON file holds.

    Raises:
        KernelTableError: The file has another format version.
        ValueError: A number is below zero, a name is of no family, or an operator is of two.
        KeyError, TypeError, AttributeError: It is not such a table.
    """
    check_format(data, "costs", FORMAT_VERSION)
    families = _families(data["families"])
    known = {*data["families"], ANY, NONE}
    rates: dict[tuple[str, str], list[Rate]] = {}
    for row in data["costs"]:
        rates.setdefault((_known(row["family"], known), row["type"]), []).append(_rate(row))
    casts = tuple(_cast(row, known) for row in data["casts"])
    joins = {
        (_known(row["producer"], known), _known(row["consumer"], known), type_): _rate(saved)
        for row in data["joins"]
        for type_, saved in row["saves"].items()
    }
    return CostTable(
        name,
        data["runtime"],
        data["device"],
        data["source"],
        families,
        frozenset(data.get("with_products", ())),
        frozenset(data.get("one_type", ())),
        {key: tuple(sorted(rows, key=lambda rate: rate.least)) for key, rows in rates.items()},
        casts,
        joins,
    )


def _families(data: Mapping[str, list[str]]) -> Mapping[str, str]:
    """Return the family of each operator.

    Raises:
        ValueError: An operator is of two families.
    """
    found: dict[str, str] = {}
    for family, operators in data.items():
        for operator in operators:
            if found.setdefault(operator, family) != family:
                raise ValueError(f"{operator} is of two families")
    return found


def _known(family: str, known: set[str]) -> str:
    if family not in known:
        raise ValueError(f"{family} is no family")
    return family


def _cast(row: Mapping[str, Any], known: set[str]) -> CastRate:
    producer, consumer = _known(row["producer"], known), _known(row["consumer"], known)
    return CastRate(row["to"], producer, consumer, _rate(row))


def _rate(row: Mapping[str, Any]) -> Rate:
    """Return a rate.

    Raises:
        ValueError: It is negative.
    """
    call, element, mac = (float(row.get(key, 0)) for key in ("call", "element", "mac"))
    least = int(row.get("from", 0))
    if min(call, element, mac, least) < 0:
        raise ValueError(f"a negative cost: {dict(row)}")
    return Rate(call, element, mac, least)
