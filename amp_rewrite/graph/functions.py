"""Checks on the functions of a model as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from amp_rewrite.errors import GraphError
from amp_rewrite.graph.traverse import graphs_in

_Key = tuple[str, str, str]


def inline_all(model: ir.Model) -> None:
    """Replace every call of a model-local function by the function's body; modifies the model."""
    if model.functions:
        InlinePass()(model)


def check_functions(functions: Sequence[ir.Function]) -> None:
    """Refuse functions that share a name or that call themselves.

    Raises:
        GraphError: Two functions have one name, or calling one would never end.
    """
    bodies: dict[_Key, ir.Graph] = {}
    for function in functions:
        key = function.identifier()
        if key in bodies:
            raise GraphError("two functions of one name", where=f"function {_name(key)}")
        bodies[key] = function.graph
    calls = {key: list(dict.fromkeys(_calls(body, bodies))) for key, body in bodies.items()}
    done: set[_Key] = set()
    for key in calls:
        _check_calls(key, calls, done)


def _check_calls(start: _Key, calls: dict[_Key, list[_Key]], done: set[_Key]) -> None:
    """Walk depth first; a function met again while it is still open calls itself."""
    stack, is_open = [(start, iter(calls[start]))], {start}
    while stack:
        key, left = stack[-1]
        callee = next(left, None)
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


def _calls(graph: ir.Graph, bodies: dict[_Key, ir.Graph]) -> Iterator[_Key]:
    for inner in graphs_in(graph):
        yield from (n.op_identifier() for n in inner if n.op_identifier() in bodies)


def _name(key: _Key) -> str:
    return f"{key[0]}::{key[1]}"
