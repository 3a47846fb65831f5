"""Checks on all model-local functions together."""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

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
    nested = {key: [c for c in called if c in calls] for key, called in calls.items()}
    depths: dict[Operator, int] = {}
    try:
        for key in TopologicalSorter(nested).static_order():
            depths[key] = 1 + max((depths[callee] for callee in nested[key]), default=0)
    except CycleError as error:
        callee, caller, *_ = error.args[1]
        raise GraphError(
            "a function calls itself",
            where=f"function {_name(callee)}",
            found=f"a call in {_name(caller)}",
            remedy="ONNX has no recursion: use Loop",
        ) from error
    deepest = max(depths, key=depths.__getitem__, default=None)
    if deepest is not None and depths[deepest] > _MAX_DEPTH:
        raise GraphError(
            "functions call each other too deep",
            where=f"function {_name(deepest)}",
            found=f"{depths[deepest]} levels",
            expected=f"at most {_MAX_DEPTH}",
            remedy="inline them before, for example with onnx.inliner",
        )


def _name(key: Operator) -> str:
    return f"{key.domain}::{key.op_type}"
