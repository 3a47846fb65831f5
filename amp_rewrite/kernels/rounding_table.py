"""Where a runtime rounds: lists/fusions/rounding_<runtime>_<version>.json as a frozen table.

A runtime that computes several nodes as one keeps what is between them in float32, and rounds once,
at the end. A table is made by probing. Its JSON, version 1:

    {"version": 1, "runtime": "openvino 2026.4.1", "source": "...",
     "together": ["Add", "Mul", ...],
     "behind": {"Conv": {"alone": ["Relu", ...], "constant": ["Mul", ...], "tensor": ["Add"]}, ...},
     "folded": {"Conv": [1, 2], ...}}

Operators of `together` that read each other are computed as one. Behind an operator of `behind`
with constant weights stands, in the same computation, a chain of operators that have no other
input (`alone`), a constant (`constant`), or, once, another tensor (`tensor`). A constant factor in
such a chain is multiplied into the inputs that `folded` names, when the model is loaded; how the
product is rounded is told in emulate/folded_weights.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from amp_rewrite import targets
from amp_rewrite.errors import KernelTableError

FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class Followers:
    """What is computed together with an operator before it.

    Attributes:
        alone: Operators without another input.
        constant: Those whose other input is a constant.
        tensor: Those whose other input is computed; one of them in a chain.
    """

    alone: frozenset[str]
    constant: frozenset[str]
    tensor: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class RoundingTable:
    """What a runtime rounds once.

    Attributes:
        runtime: The runtime in words.
        together: Operators of one element each that are computed as one where they read each other.
        behind: Operator with constant weights -> what is computed together with it.
        folded: Operator -> its weights and its bias, into which constant factors go.
    """

    runtime: str
    together: frozenset[str]
    behind: Mapping[str, Followers]
    folded: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])


def of_target(target: targets.Target) -> RoundingTable | None:
    """Return where a target rounds; None is behind every node, as several targets do.

    Raises:
        KernelTableError: The table cannot be read.
    """
    return None if target.rounding is None else _load(target.rounding)


@cache
def _load(name: str) -> RoundingTable:
    path = targets.DATA.joinpath("fusions", f"rounding_{name}.json")
    try:
        return parse(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise KernelTableError(
            "the table of rounding cannot be read",
            where=path.name,
            found=f"{type(error).__name__}: {error}",
            remedy="reinstall the package",
        ) from error


def parse(data: Mapping[str, Any]) -> RoundingTable:
    """Return the table that a decoded JSON file holds.

    Raises:
        KernelTableError: The file has another format version.
        KeyError, TypeError, AttributeError: It is not such a table.
    """
    if data["version"] != FORMAT_VERSION:
        raise KernelTableError(
            "unknown format of a table of rounding", found=data["version"], expected=FORMAT_VERSION
        )
    behind = {
        op: Followers(*(frozenset(row[key]) for key in ("alone", "constant", "tensor")))
        for op, row in data["behind"].items()
    }
    folded = {op: tuple(map(int, inputs)) for op, inputs in data["folded"].items()}
    return RoundingTable(data["runtime"], frozenset(data["together"]), behind, folded)
