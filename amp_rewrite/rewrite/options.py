"""The options of a rewrite, checked once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from amp_rewrite import targets
from amp_rewrite.dtypes import DType, low_dtype
from amp_rewrite.errors import OptionError
from amp_rewrite.oplists import OpLists
from amp_rewrite.paint.context import NodeRules

WEIGHTS = ("convert", "cast")

Lists = OpLists | str | Path | Sequence[str | Path] | None


@dataclass(frozen=True)
class RewriteOptions:
    """What `rewrite` was asked to do; see its docstring for the meaning of each field."""

    precision: str = "float16"
    lists: Lists = None
    level: str = "default"
    target: str = targets.DEFAULT
    keep_io_types: bool | tuple[str, ...] = True
    preserve: tuple[str, ...] = ()
    deny_nodes: tuple[str, ...] = ()
    allow_nodes: tuple[str, ...] = ()
    weights: str = "convert"
    infer_after_allow: bool = True
    inline_functions: bool = False
    move_casts: bool = True
    variables: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Reject impossible values.

        Raises:
            OptionError: A value is unknown, or a pattern is no regular expression.
        """
        low_dtype(self.precision)
        targets.find(self.target)
        _require("weights", self.weights, WEIGHTS)
        _ = self.rules

    @property
    def low(self) -> DType:
        """The low-precision type."""
        return low_dtype(self.precision)

    @property
    def rules(self) -> NodeRules:
        """The rules about single nodes."""
        return NodeRules(
            preserve=frozenset(self.preserve),
            deny=tuple(_pattern("deny_nodes", p) for p in self.deny_nodes),
            allow=tuple(_pattern("allow_nodes", p) for p in self.allow_nodes),
        )

    def check_names(self, model: ir.Model) -> None:
        """Reject names and patterns that fit nothing in the model.

        Raises:
            OptionError: `preserve`, `keep_io_types`, `deny_nodes` or `allow_nodes` names nothing.
        """
        nodes = {node.name or "" for node in model.graph.all_nodes()}
        _require_known("preserve", self.preserve, nodes, "a node name")
        for option in ("deny_nodes", "allow_nodes"):
            for pattern in getattr(self, option):
                if not any(re.fullmatch(pattern, name) for name in nodes):
                    raise OptionError(
                        f"{option} matches no node",
                        found=repr(pattern),
                        expected="a regular expression for a whole node name",
                        remedy="`amp-rewrite explain MODEL` lists the node names",
                    )
        if not isinstance(self.keep_io_types, bool):
            ends = {v.name or "" for v in (*model.graph.inputs, *model.graph.outputs)}
            _require_known("keep_io_types", self.keep_io_types, ends, "a graph input or output")


def names_of(value: Iterable[str] | str, option: str) -> tuple[str, ...]:
    """Return an option that holds names as a tuple; a bare string is a user's slip.

    Raises:
        OptionError: `value` is a string.
    """
    if isinstance(value, str):
        raise OptionError(
            f"{option} must be a list", found=repr(value), remedy=f"pass {option}=[{value!r}]"
        )
    return tuple(value)


def _require(option: str, found: str, expected: Sequence[str]) -> None:
    if found not in expected:
        raise OptionError(
            f"unknown {option}", found=repr(found), expected=" or ".join(map(repr, expected))
        )


def _pattern(option: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise OptionError(
            f"{option} holds no regular expression",
            found=repr(text),
            expected=f"Python syntax ({error})",
        ) from error


def _require_known(option: str, names: Sequence[str], known: set[str], kind: str) -> None:
    for name in names:
        if name not in known:
            raise OptionError(
                f"{option} names nothing in the model", found=repr(name), expected=kind
            )
