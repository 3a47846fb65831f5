"""Checks on all model-local functions together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from amp_rewrite.errors import GraphError
from amp_rewrite.graph.flat import FlatGraph, Operator

_MAX_DEPTH = 64  # calls inside calls; exporters nest a dozen


def check_functions(functions: Sequence[tuple[Operator, FlatGraph]]) -> None:
    """Refuse functions that share a name, that call themselves, or that call others too deep.

    Raises:
        GraphError: Two functions have one name, calling one would never end, or its calls are
            nested too deep.
    """
    calls: dict[Operator, list[Operator]] = {}
    for key, graph in functions:
        if key in calls:
            raise GraphError("two functions of one name", where=f"function {_name(key)}")
        calls[key] = graph.operators
    depths: dict[Operator, int] = {}
    for key in calls:
        _check_calls(key, calls, depths)
    if depths:
        deepest = max(depths, key=depths.__getitem__)
        _check_depth(deepest, depths[deepest])


def _check_calls(
    start: Operator, calls: Mapping[Operator, list[Operator]], depths: dict[Operator, int]
) -> None:
    """Walk depth first and note depths; a function met again while it is open calls itself."""
    stack, is_open = [(start, iter(calls[start]))], {start}
    while stack:
        key, left = stack[-1]
        callee = next((c for c in left if c in calls), None)
        if callee is None:
            stack.pop()
            is_open.discard(key)
            depths[key] = 1 + max((depths[c] for c in calls[key] if c in calls), default=0)
        elif callee in is_open:
            raise GraphError(
                "a function calls itself",
                where=f"function {_name(callee)}",
                found=f"a call in {_name(key)}",
                remedy="ONNX has no recursion: use Loop",
            )
        elif callee not in depths:
            stack.append((callee, iter(calls[callee])))
            is_open.add(callee)


def _check_depth(key: Operator, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise GraphError(
            "functions call each other too deep",
            where=f"function {_name(key)}",
            found=f"{depth} levels",
            expected=f"at most {_MAX_DEPTH}",
            remedy="inline them before, for example with onnx.inliner",
        )


def _name(key: Operator) -> str:
    return f"{key.domain}::{key.op_type}"
