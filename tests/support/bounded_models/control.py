"""If, Loop, Scan and calls of functions: bodies of random rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bounded_models.scope import Row, Scope, Value, declared

DEPTH = 2
DOMAIN = "local"
TRIPS = 2

Fill = Callable[[Scope], None]


def rows(fill: Fill) -> dict[str, Row]:
    """Return the rows; `fill` adds a few random rows to the scope of a body."""
    return {
        "If": lambda scope: branch(scope, fill),
        "Loop": lambda scope: loop(scope, fill),
        "Scan": lambda scope: scan(scope, fill),
        "Function": lambda scope: function(scope, fill),
    }


def branch(scope: Scope, fill: Fill) -> None:
    a, b = scope.pick_exact(), scope.pick_exact()
    whole = scope.add("ReduceMax", [a, scope.constant([0, 1], np.int64)], keepdims=0)[0]
    condition = scope.add("Greater", [whole, scope.constant(0.5)])[0]
    ends: list[Value] = []
    graphs = []
    for role in ("then", "else"):
        inner = scope.inside([*scope.values[-3:], a, b])
        fill(inner)
        last = _end(inner)
        ends.append(last)
        graphs.append(inner.graph(scope.names.new(role), [], [declared(last.name)]))
    y = scope.add("If", [condition], then_branch=graphs[0], else_branch=graphs[1])[0]
    worst = max(scope.rounded(end).error for end in ends)
    scope.keep(y, max(end.bound for end in ends), worst, moved=True)


def loop(scope: Scope, fill: Fill) -> None:
    """Carry a value around and stack another one: the errors of a trip go into the next."""
    first = scope.pick()
    known = list(scope.values[-2:])
    state, trip, going = (scope.names.new(n) for n in ("state", "trip", "going"))

    def body(entering: Value) -> tuple[Scope, Value]:
        inner = scope.inside([*known, entering])
        fill(inner)
        last = _end(inner)
        bounded = inner.add("Tanh", [last])[0]
        return inner, inner.rounded(Value(bounded, 1.0, inner.rounded(last).error))

    inner, last = _repeated(scope, first, state, body)
    keep = inner.add("Identity", [going])[0]
    stacked = inner.add("Neg", [last])[0]
    inputs = [declared(trip, [], TensorProto.INT64), declared(going, [], TensorProto.BOOL)]
    outputs = [declared(keep, [], TensorProto.BOOL), declared(last.name), declared(stacked)]
    graph = inner.graph(scope.names.new("body"), [*inputs, declared(state)], outputs)
    more = scope.constant(True, np.bool_) if scope.rng.random() < 0.5 else ""
    count = scope.constant(TRIPS, np.int64)
    final, scanned = scope.add("Loop", [count, more, first], 2, body=graph)
    scope.keep(final, 1.0, scope.rounded(last).error)
    row = scope.add("Gather", [scanned, scope.constant(1, np.int64)], axis=0)[0]
    scope.keep(row, 1.0, scope.rounded(last).error)


def scan(scope: Scope, fill: Fill) -> None:
    first, read = scope.pick(), scope.pick()
    rows_of = scope.add("Unsqueeze", [read, scope.constant([0], np.int64)])[0]
    twice = scope.add("Concat", [rows_of, rows_of], axis=0)[0]
    state, element = scope.names.new("state"), scope.names.new("element")

    def body(entering: Value) -> tuple[Scope, Value]:
        inner = scope.inside([replace(scope.rounded(read), name=element), entering])
        fill(inner)
        last = _end(inner)
        bounded = inner.add("Tanh", [last])[0]
        return inner, inner.rounded(Value(bounded, 1.0, inner.rounded(last).error))

    inner, last = _repeated(scope, first, state, body)
    inputs = [declared(state), declared(element)]
    graph = inner.graph(scope.names.new("body"), inputs, [declared(last.name)])
    y = scope.add("Scan", [first, twice], body=graph, num_scan_inputs=1)[0]
    scope.keep(y, 1.0, scope.rounded(last).error)


def function(scope: Scope, fill: Fill) -> None:
    """Call a function of two values; its constants are nodes of its own."""
    a, b = scope.pick(), scope.pick()
    first, second = scope.names.new("formal"), scope.names.new("formal")
    before = set(scope.names.constants)
    inner = scope.inside([replace(a, name=first), replace(b, name=second)])
    fill(inner)
    last = _end(inner)
    own = [name for name in scope.names.constants if name not in before]
    held = [_constant_node(name, scope.names.constants.pop(name)) for name in own]
    name = scope.names.new("function")
    imports = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
    made = helper.make_function(
        DOMAIN, name, [first, second], [last.name], [*held, *inner.nodes], imports
    )
    scope.names.functions.append(made)
    y = scope.names.new("called")
    node = helper.make_node(name, [a.name, b.name], [y], scope.names.new("call"), domain=DOMAIN)
    scope.nodes.append(node)
    scope.keep(y, last.bound, scope.rounded(last).error)


OPSET = 21


def _repeated(
    scope: Scope, first: Value, state: str, body: Callable[[Value], tuple[Scope, Value]]
) -> tuple[Scope, Value]:
    """Return the body of a loop, with the bounds of its last trip.

    The same random numbers make the same nodes of every trip, so that only bounds differ.
    """
    bound, error = max(first.bound, 1.0), first.error + scope.rounding(first) + 1e-30
    start = scope.rng.bit_generator.state
    count, known = scope.names.count, dict(scope.names.constants)
    functions = list(scope.names.functions)
    for trip in range(TRIPS):
        if trip:
            scope.rng.bit_generator.state = start
            scope.names.count, scope.names.constants = count, dict(known)
            scope.names.functions[:] = functions
        inner, last = body(scope.rounded(Value(state, bound, error)))
        error = max(error, inner.rounded(last).error)
    return inner, last  # pyright: ignore[reportPossiblyUnboundVariable] there is a trip


def _end(scope: Scope) -> Value:
    """Return the value of a body's last node, which no other name may stand for."""
    made = {name for node in scope.nodes for name in node.output}
    last = scope.values[-1]
    if last.name in made:
        return last
    same = scope.add("Identity", [last])[0]
    return replace(scope.rounded(last), name=same)


def _constant_node(name: str, array: np.ndarray) -> onnx.NodeProto:
    tensor = numpy_helper.from_array(array)
    return helper.make_node("Constant", [], [name], f"{name}_node", value=tensor)
