"""Trade computing for memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import onnx_ir as ir

from amp_rewrite.base.name_patterns import NamePattern, suggestion
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.step_part import part_of
from amp_rewrite.training.graph.freeze import changeable
from amp_rewrite.training.graph.recomputed import Recomputed
from amp_rewrite.training.graph.selection import entries

_EVERY = re.compile(r"every(?: (\d+))? blocks?")


def recompute(model: ir.Model, nodes: str | Iterable[Any]) -> None:
    """Let gradients compute parts of the forward pass again instead of keeping their values.

    They are freed in the forward pass and computed once more when the backward pass comes to them,
    from what enters the part, with the same random numbers.

    T. Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016,
    https://arxiv.org/abs/1604.06174.

    Args:
        model: What `amp_rewrite.load` returned.
        nodes: "every 2 blocks" makes parts of 2 blocks; a block ends where all that follows
            depends on one value, and has a product in it: a branch of a transformer with its sum, a
            convolution. What a part hands on is kept, and all of the last part, since the backward
            pass begins there. Else patterns for names of nodes, such as "*/mlp/*", regular
            expressions, functions of a node, or a list of these: what those nodes make is computed
            again; neighbours that are chosen are one part.

    Raises:
        OptionError: A pattern matches no node, or gradients have been computed already.
    """
    graph = changeable(model)
    every = _EVERY.fullmatch(nodes.strip()) if isinstance(nodes, str) else None
    if every is not None:
        graph.recomputed = Recomputed(_count(every[1]), _none)
        return
    forward = [node for node in graph.model.graph if part_of(node) is None]
    tests = [_test(entry, forward) for entry in entries(nodes)]
    if not tests:
        raise OptionError("no nodes are chosen", where="recompute", found=repr(nodes))
    graph.recomputed = Recomputed(0, lambda node: any(test(node) for test in tests))


def _count(number: str | None) -> int:
    """Return how many blocks are one part."""
    count = 1 if number is None else int(number)
    if not count:
        raise OptionError(
            "impossible number of blocks", where="recompute", found=count, expected="at least 1"
        )
    return count


def _none(node: ir.Node) -> bool:
    del node
    return False


def _test(entry: object, nodes: Sequence[ir.Node]) -> Callable[[ir.Node], bool]:
    """Return what tells whether one entry of a choice means a node."""
    if isinstance(entry, str):
        meant = NamePattern.of(entry, "recompute")
        test: Callable[[ir.Node], bool] = lambda node: meant.matches(node.name or "")  # noqa: E731
    elif isinstance(entry, re.Pattern):
        pattern = cast("re.Pattern[str]", entry)
        test = lambda node: pattern.search(node.name or "") is not None  # noqa: E731
    elif callable(entry):
        test = lambda node: bool(entry(node))  # noqa: E731
    else:
        raise OptionError(
            "not a choice of nodes",
            where="recompute",
            found=f"an object of type {type(entry).__name__}",
            expected="'every 2 blocks', a pattern of names, a regular expression or a function",
        )
    if not any(map(test, nodes)):
        wanted = str(getattr(entry, "pattern", entry))
        paths = [node.name or "" for node in nodes]
        names = [*paths, *(path.rpartition("/")[2] for path in paths)]
        raise OptionError(
            "the pattern matches no node",
            where="recompute",
            found=repr(wanted),
            expected=suggestion(wanted.strip("*/"), names, "the name of one"),
            remedy="* stands for any text in a name; 'every 2 blocks' needs no names",
        )
    return test
