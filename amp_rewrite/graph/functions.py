"""Model-local functions: checks on all of them together, and their bodies in place of calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import onnx_ir as ir
from onnx_ir.passes import PassError
from onnx_ir.passes.common import InlinePass

from amp_rewrite.errors import GraphError
from amp_rewrite.graph.io.gate import admit
from amp_rewrite.graph.traverse import graphs_in

_Key = tuple[str, str, str]


def inline(model: ir.Model, criteria: Callable[[ir.Function], bool] | None = None) -> None:
    """Replace calls of model-local functions by the functions' bodies; modifies the model.

    Args:
        model: The model.
        criteria: Which functions; None is all.

    Raises:
        GraphError: A body cannot stand in the model, which is then of no use any more: it has
            another opset, for example, or needs an attribute that a call does not give.
    """
    chosen = {key: f for key, f in model.functions.items() if criteria is None or criteria(f)}
    if not chosen:
        return
    graphs = (model.graph, *model.functions.values())
    for node in chain.from_iterable(graph.all_nodes() for graph in graphs):
        function = chosen.get(node.op_identifier())
        if function is not None:  # the pass wants a call to name every output
            node.resize_outputs(len(function.outputs))
    try:
        InlinePass(criteria)(model)
    except (PassError, ValueError) as error:
        raise GraphError(
            "the model-local functions cannot be inlined",
            found=error.__cause__ or error,
            remedy="inline them before, for example with onnx.inliner",
        ) from error
    admit(model)


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
