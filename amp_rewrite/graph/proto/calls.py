"""Checks on all model-local functions together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from amp_rewrite.errors import GraphError
from amp_rewrite.graph.flat import FlatGraph, Operator


def check_functions(functions: Sequence[tuple[Operator, FlatGraph]]) -> None:
    """Refuse functions that share a name or that call themselves.

    Raises:
        GraphError: Two functions have one name, or calling one would never end.
    """
    calls: dict[Operator, list[Operator]] = {}
    for key, graph in functions:
        if key in calls:
            raise GraphError("two functions of one name", where=f"function {_name(key)}")
        calls[key] = graph.operators
    done: set[Operator] = set()
    for key in calls:
        _check_calls(key, calls, done)


def _check_calls(
    start: Operator, calls: Mapping[Operator, list[Operator]], done: set[Operator]
) -> None:
    """Walk depth first; a function met again while it is still open calls itself."""
    stack, is_open = [(start, iter(calls[start]))], {start}
    while stack:
        key, left = stack[-1]
        callee = next((c for c in left if c in calls), None)
        if callee is None:
            stack.pop()
            is_open.discard(key)
            done.add(key)
        elif callee in is_open:
            raise GraphError(
                "a function calls itself",
                where=f"function {_name(callee)}",
                found=f"a call in {_name(key)}",
                remedy="ONNX has no recursion: use Loop",
            )
        elif callee not in done:
            stack.append((callee, iter(calls[callee])))
            is_open.add(callee)


def _name(key: Operator) -> str:
    return f"{key.domain}::{key.op_type}"
