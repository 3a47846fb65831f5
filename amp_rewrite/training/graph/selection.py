"""Variables chosen by names, by what they are, or by a function."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

import onnx_ir as ir

from amp_rewrite.base.name_patterns import NamePattern, hint, parts, suggestion
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.traits import Trait, has, operator
from amp_rewrite.training.graph.training_graph import GraphValue, State
from amp_rewrite.training.graph.weights import forward_uses

Selection: TypeAlias = (
    "str | re.Pattern[str] | State | GraphValue | Callable[[State], bool] | Iterable[Any]"
)
"""Which variables: patterns of names, words, a regular expression, a variable, a function of a
variable, or a list of these; see `selected`."""

WORDS = ("bias", "norm", "embedding")
"""Words that choose variables by their use; see `selected`."""

# operators: those that have a bias, and where; users choose by these words.
_BIASES: Mapping[str, int] = {
    "Conv": 2,
    "ConvTranspose": 2,
    "DeformConv": 3,
    "GRU": 3,
    "Gemm": 2,
    "LSTM": 3,
    "RNN": 3,
}
"""Operator -> its input that is a bias."""
# operators: those whose second and third inputs scale and shift what is normalized.
_NORMS = (
    "BatchNormalization",
    "GroupNormalization",
    "InstanceNormalization",
    "LayerNormalization",
    "RMSNormalization",
)
# operators: those that read rows of a table.
_TABLES = ("Gather", "GatherND", "GatherElements")
_SHOWN = 10


def selected(
    variables: Sequence[State], selection: Selection, where: str | None = None
) -> list[State]:
    """Return the variables that are meant, in their order; each entry must match one.

    A text holds patterns for whole names with * and ?, separated by | or by commas. Words instead
    of patterns say what a variable is, whatever it is called: "bias" is an operator's bias or a
    vector that is added, "norm" what a normalization scales and shifts by or a vector that is
    multiplied, "embedding" a table of which rows are gathered. There may be none of those. A
    regular expression is searched for in names.
    """
    names: set[str] = set()
    for entry in entries(selection):
        if isinstance(entry, str) and entry in WORDS:
            names.update(v.name for v in variables if _is(v.value, entry))
            continue
        matched = {v.name for v in variables if matches(v, entry, where)}
        if not matched:
            raise _nothing(variables, entry, where)
        names |= matched
    return [v for v in variables if v.name in names]


def entries(selection: object) -> Iterator[object]:
    """Yield patterns, words, expressions, variables and functions, one by one."""
    if isinstance(selection, str):
        yield from parts(selection)
    elif isinstance(selection, Iterable) and not isinstance(selection, State | GraphValue):
        for entry in cast("Iterable[object]", selection):
            yield from entries(entry)
    else:
        yield selection


def matches(variable: State, entry: object, where: str | None) -> bool:
    """Return whether one entry of a selection means a variable."""
    if isinstance(entry, str):
        return NamePattern.of(entry, where or "selection").matches_any((variable.name,))
    if isinstance(entry, re.Pattern):
        return bool(cast("re.Pattern[str]", entry).search(variable.name))
    if isinstance(entry, State | GraphValue):
        return entry.value is variable.value
    if callable(entry):
        return bool(entry(variable))
    raise OptionError(
        "not a choice of variables",
        where=where,
        found=f"an object of type {type(entry).__name__}",
        expected=f"a pattern of names, {', '.join(map(repr, WORDS))}, a variable or a function",
    )


def _nothing(variables: Sequence[State], entry: object, where: str | None) -> OptionError:
    names = [v.name for v in variables]
    some = "some of " + ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    pattern = entry.pattern if isinstance(entry, re.Pattern) else entry  # pyright: ignore[reportUnknownMemberType]
    return OptionError(
        "the pattern matches no variable",
        where=where,
        found=repr(pattern),
        expected=suggestion(pattern, names, some) if isinstance(pattern, str) else some,
        remedy=hint(pattern) if isinstance(pattern, str) else None,
    )


def _is(value: ir.Value, word: str) -> bool:
    """Return whether a variable is what a word says, wherever it is used."""
    used = list(forward_uses(value))
    return bool(used) and all(_role(value, node, index) == word for node, index in used)


def _role(variable: ir.Value, node: ir.Node, index: int) -> str | None:
    """Return the word for what a node does with its input, or None."""
    name = operator(node)
    if name in _NORMS:
        return "norm"
    if _BIASES.get(name) == index:
        return "bias"
    if name in _TABLES and index == 0:
        return "embedding"
    if has(node, Trait.ADDS) and _is_vector(variable):
        return "bias"
    if has(node, Trait.MULTIPLIES) and not has(node, Trait.CONTRACTS) and _is_vector(variable):
        return "norm"
    return None


def _is_vector(value: ir.Value) -> bool:
    """Return whether all axes of a value but one have length 1, or all of them."""
    return value.shape is not None and sum(d != 1 for d in value.shape.dims) <= 1
