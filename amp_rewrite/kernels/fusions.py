"""The groups that a runtime fuses: lists/fusions/<runtime>_<version>.json as a frozen table.

Its JSON, version 1:

    {"version": 1, "runtime": "onnxruntime 1.31.1 ...", "source": "...",
     "fusions": [{"pattern": "Gelu", "domain": "com.microsoft", "op": "Gelu", "opset": 1,
                  "low": ["float16"], "behind_cast": true}, ...]}

`pattern` is the name of patterns in values/patterns. `opset` is the version of the operator that
the runtime makes, null for the one of the model's opset. `low` are the types in which it finds
the pattern: in bfloat16 it does not recognise constants, for example. `behind_cast` tells whether
it finds the pattern in float32 if a Cast makes its input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from amp_rewrite import targets
from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.graph import schemas
from amp_rewrite.graph.elements import tensor
from amp_rewrite.kernels.kernel_table import KernelTable, check_format, shipped, table_of

FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class Fusion:
    """One kind of group that a runtime computes as one operator, as in the JSON above."""

    pattern: str
    domain: str
    op: str
    opset: int | None
    low: frozenset[str]
    behind_cast: bool

    def runs(self, kernels: KernelTable | None, opset: int, source: DType, result: DType) -> bool:
        """Tell whether the operator runs with these types of its first input and its result.

        A scale and a bias have the type of the result. Without a table all kernels exist but those
        that take one type and give another.
        """
        version = opset if self.opset is None else self.opset
        schema = schemas.find(self.domain, self.op, version)
        has_two_types = schema is None or "V" in schema.variables
        if (kernels is None or not has_two_types) and source is not result:
            return False
        if kernels is None:
            return True
        types = {"T": source, "U": FLOAT32, "V": result}
        types = {name: tensor(dtype.number) for name, dtype in types.items()}
        return kernels.has_kernel(self.domain, self.op, version, types)


@dataclass(frozen=True, slots=True)
class TargetFusion:
    """The fusion of one kind of group by the parts of a target (or None), and their kernels."""

    parts: tuple[tuple[Fusion | None, KernelTable | None], ...]

    @property
    def behind_cast(self) -> bool:
        """Whether all that find the pattern in float32 do so where a Cast makes its input."""
        return all(fusion is None or fusion.behind_cast for fusion, _ in self.parts)

    def runs(self, low: DType, opset: int, source: DType, result: DType) -> bool:
        """Tell whether all of the targets compute a group with low values as one operator.

        Where one of them computes it node by node, values that are safe inside the operator are
        not. The arguments are those of `Fusion.runs`.
        """
        return all(
            fusion is not None
            and low.name in fusion.low
            and fusion.runs(kernels, opset, source, result)
            for fusion, kernels in self.parts
        )


def of_target(target: targets.Target) -> Mapping[str, TargetFusion]:
    """Return the fusions of a target, of several those of any, by pattern."""
    tables = [(load(part.fusions), table_of(part)) for part in target.parts or (target,)]
    patterns = dict.fromkeys(pattern for table, _ in tables for pattern in table)
    return {
        each: TargetFusion(tuple((table.get(each), kernels) for table, kernels in tables))
        for each in patterns
    }


@cache
def load(name: str | None) -> Mapping[str, Fusion]:
    """Return the shipped table of a runtime ("onnxruntime_1.31.1"), by pattern, read once."""
    return {} if name is None else shipped("fusions", name, "fusions", parse)


def parse(data: Mapping[str, Any]) -> Mapping[str, Fusion]:
    """Return the table in a decoded JSON file."""
    check_format(data, "fusions", FORMAT_VERSION)
    rows: Any = ({**row, "low": frozenset(row["low"])} for row in data["fusions"])
    return {row["pattern"]: Fusion(**row) for row in rows}
