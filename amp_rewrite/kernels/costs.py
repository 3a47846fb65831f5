"""What operators and casts take on a target, as a frozen table.

It comes from lists/costs/<name>.json, or from a file of the user that `amp-rewrite measure-costs`
or `convert --measure` wrote. Its JSON, version 1; all times are microseconds:

    {"version": 1, "provider": "OpenVINO", "runtime": "openvino 2026.4.1",
     "device": "AMD EPYC 9B14, 2 threads", "driver": "", "source": "amp-rewrite measure-costs",
     "families": {"product": ["MatMul", "Gemm"], "elementwise": ["Add", "com.microsoft::Gelu"]},
     "with_products": ["Attention", "Gelu"], "one_type": ["RotaryEmbedding"],
     "least_rounding": 0.2,
     "costs": [{"family": "product", "type": "float32", "from": 0,
                "call": 2.5, "element": 1.2e-4, "mac": 1.1e-5}, ...],
     "casts": [{"to": "bfloat16", "producer": "*", "consumer": "*", "call": 2, "element": 1e-4}],
     "joins": [{"producer": "product", "consumer": "elementwise",
                "saves": {"float32": {"call": 1, "element": 1e-4}, "bfloat16": {...}}}],
     "model": {"nodes": 126, "digest": "9f86d081884c7d65"},
     "nodes": [{"result": "h", "float32": 41.5, "bfloat16": 20.1}, ...],
     "together": [["h", "relu_h"], ...]}

`families` name operators as traits.py does, and groups of lists/fusions and layouts by pattern.
`with_products`, which may be left out, are patterns of values/patterns whose nodes are computed,
and rounded, together with the products among them or the one in front; those of `one_type`, which
may be left out as well, are one operator there if all of their nodes have one type.
`least_rounding`, 0.2 if it is left out, is what an operator that rounds has to save in any case, as
a share of what an operator of the model takes in the mean in float32. A row of
`costs` is for nodes of a family that compute in a type: what a call takes, plus what each element
takes that it reads or writes, weights included (of Gather and Slice, twice what they write), plus
what each multiply-accumulate takes. Of the
rows of a family and type the last counts whose `from` is not above the size of the node, its
multiply-accumulates if it has any, else its elements. An operator of no family, or a family without
rows for both types, takes as long in either type. The first row of `casts` counts that fits: "*" is
any family and operators of none, "none" an input or an output of the model. A row of `joins` says
that a node of one family is computed together with what makes its input, if nothing else reads
that; `saves` is what the two take less than one after the other, by the element of the value
between them, and is lost where they have different types.

The last three keys are of a table that was measured on one model, and may be left out together.
`nodes` says what single nodes take in either type, each named by its first result, in place of what
their families say; `together` which of them the engine computed as one node in both types: they
are of one type, and what they take together is divided among them. `model` tells that model from
others. `driver` is empty where the engine needs none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from amp_rewrite.dtypes import FLOAT32, DType

LEAST_ROUNDING = 0.2
"""What an operator that rounds has to save in any case, as a share of what such operators of the
model take in the mean: less is hard to measure, and rounding is certain."""

ANY, NONE = "*", "none"
"""What stands in place of a family: any of them, or none; and an end of the model."""


@dataclass(frozen=True, slots=True)
class Rate:
    """What something takes, in microseconds.

    Attributes:
        call: However small it is.
        element: For each element that it reads or writes; of Gather and Slice, of twice what they
            write; of a cast or join, of the value.
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
        provider: The execution provider, or engine, that it was measured on.
        driver: The device's driver in words, "" without one.
        families: Operator, or pattern of a fused group -> its family.
        with_products: The patterns that are computed together with a product.
        one_type: The patterns that are one operator if their nodes have one type.
        rates: (family, name of a type) -> the rates by ascending size.
        casts: The rates of casts; the first that fits counts.
        joins: (family of the producer, family of the consumer, name of a type) -> what they save.
        nodes: First result of a node of the measured model -> name of a type -> microseconds.
        together: The first results of nodes that the engine computed as one.
        model: What tells the model whose nodes these are from others; "" without nodes.
        least_rounding: What an operator that rounds has to save, as a share of the mean operator.
    """

    name: str
    runtime: str
    device: str
    source: str
    provider: str
    driver: str
    families: Mapping[str, str]
    with_products: frozenset[str]
    one_type: frozenset[str]
    rates: Mapping[tuple[str, str], tuple[Rate, ...]]
    casts: tuple[CastRate, ...]
    joins: Mapping[tuple[str, str, str], Rate]
    nodes: Mapping[str, Mapping[str, float]] = field(default_factory=dict[str, Mapping[str, float]])
    together: tuple[tuple[str, ...], ...] = ()
    model: str = ""
    least_rounding: float = LEAST_ROUNDING

    def __repr__(self) -> str:
        """Return one line, for much is in it."""
        return f"CostTable({self.name!r}, {self.runtime!r}, {self.device!r})"

    def family(self, operator: str) -> str:
        """Return the family of an operator or pattern, "*" if it has none."""
        return self.families.get(operator, ANY)

    def takes_low(self, low: DType) -> bool:
        """Tell whether a low type was measured."""
        rated = any(type_ == low.name for _, type_ in self.rates)
        return rated or any(low.name in taken for taken in self.nodes.values())

    def node(self, family: str, dtype: DType, elements: int, macs: int = 0) -> float:
        """Return the microseconds of a node that reads and writes `elements`, weights included."""
        size, best = macs or elements, NOTHING
        for rate in self.rates.get((family, dtype.name), ()):
            if rate.least > size:
                break
            best = rate
        return best.takes(elements, macs)

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


UNKNOWN = CostTable("", "", "", "", "", "", {}, frozenset(), frozenset(), {}, (), {})
"""What says that nothing is known of costs, whatever the target has."""
