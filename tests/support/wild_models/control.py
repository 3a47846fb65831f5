"""If, Loop, Scan and calls of functions: bodies of random rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import helper

from wild_models.pool import BOOL, FLOAT, INT64, Pool, Row, Value, axes_of

DEPTH = 2
DOMAIN = "loc"

Fill = Callable[[Pool], None]


def rows(fill: Fill) -> dict[str, tuple[int, Row]]:
    """Return the rows; `fill` adds a few random rows to a body."""
    found: dict[str, Callable[[Pool, Fill], None]] = {
        "If": branch,
        "Loop": loop,
        "Scan": scan,
        "Function": function,
    }
    return {name: (13, lambda pool, row=row: row(pool, fill)) for name, row in found.items()}


def branch(pool: Pool, fill: Fill) -> None:
    """Choose by a value or by an input; the names inside may be the same in both branches."""
    like = pool.take()
    condition, count = _condition(pool), pool.rng.randint(1, 2)
    bodies = {}
    start = pool.names.count
    for role in ("then_branch", "else_branch"):
        if pool.rng.random() < 0.3 and not pool.names.shared:
            pool.names.count = start  # equal names in two scopes
        inner = pool.inside(pool.values)
        fill(inner)
        ends = [_end(inner, like) for _ in range(count)]
        bodies[role] = inner.graph([], ends)
    for name in pool.add("If", [condition], count, **bodies):
        pool.keep(name, FLOAT, like.shape, 32.0)


def _condition(pool: Pool) -> Value:
    found = pool.find(lambda v: v.dtype == BOOL and v.shape == ())
    if found is not None and pool.rng.random() < 0.5:
        return found
    x = pool.take()
    flat = pool.add("Reshape", [x, pool.ints(-1)])[0]
    axes, attributes = axes_of(pool, "ReduceMax", [0])
    most = pool.add("ReduceMax", [flat, *axes], keepdims=0, **attributes)[0]
    return pool.keep(pool.add("Greater", [most, pool.scalar(0, np.float32)])[0], BOOL, (), 1)


def _end(inner: Pool, like: Value) -> Value:
    """Return a value of the body's own, of another value's shape."""
    last = next((v for v in reversed(inner.own) if v.dtype == FLOAT), None)
    if last is not None and last.shape == like.shape and inner.rng.random() < 0.8:
        same = inner.add("Identity", [last])[0]
        return Value(same, FLOAT, like.shape, last.bound)
    if last is None:
        return Value(inner.add("Tanh", [like])[0], FLOAT, like.shape, 1.0)
    whole = inner.add("ReduceMean", [last], keepdims=0)[0] if last.shape else last.name
    return Value(inner.add("Add", [like, whole])[0], FLOAT, like.shape, like.bound + last.bound)


def loop(pool: Pool, fill: Fill) -> None:
    """Carry a value around, and stack another one."""
    first = pool.take()
    names = [pool.names.new(stem) for stem in ("it", "cd", "st")]
    trip, going = Value(names[0], INT64, ()), Value(names[1], BOOL, ())
    state = Value(names[2], FLOAT, first.shape, 2.0)
    inner = pool.inside([*pool.values, state])
    fill(inner)
    last = _bounded(inner, _end(inner, state))
    keep = Value(inner.add("Identity", [going])[0], BOOL, ())
    stacked = Value(inner.add("Neg", [last])[0], FLOAT, first.shape, 1.0)
    body = inner.graph([trip, going, state], [keep, last, stacked])
    more = pool.scalar(True, np.bool_) if pool.rng.random() < 0.5 else ""
    made = pool.add("Loop", [pool.scalar(3), more, first], 2, body=body)
    pool.keep(made[0], FLOAT, first.shape, 1.0)
    pool.keep(made[1], FLOAT, (3, *first.shape), 1.0)


def _bounded(inner: Pool, value: Value) -> Value:
    return Value(inner.add("Tanh", [value])[0], FLOAT, value.shape, 1.0)


def scan(pool: Pool, fill: Fill) -> None:
    """Read a value row by row; a state goes through, constant where it begins or computed."""
    rows_of = pool.take(least=1)
    first = pool.take() if pool.rng.random() < 0.6 else pool.number(*pool.shape(1))
    state = Value(pool.names.new("ss"), FLOAT, first.shape, 2.0)
    element = Value(pool.names.new("el"), FLOAT, rows_of.shape[1:], rows_of.bound)
    inner = pool.inside([*pool.values, element, state])
    fill(inner)
    last = _bounded(inner, _end(inner, state))
    stacked = Value(inner.add("Neg", [element])[0], FLOAT, element.shape, element.bound)
    body = inner.graph([state, element], [last, stacked])
    made = pool.add("Scan", [first, rows_of], 2, body=body, num_scan_inputs=1)
    pool.keep(made[0], FLOAT, first.shape, 1.0)
    pool.keep(made[1], FLOAT, rows_of.shape, element.bound)


def function(pool: Pool, fill: Fill) -> None:
    """Call a function; its constants are nodes of its own."""
    x = pool.take()
    formal = Value(pool.names.new("a"), FLOAT, x.shape, x.bound)
    inner = pool.inside([formal], in_function=True)
    fill(inner)
    last = _end(inner, formal)
    name = pool.names.new("Fn")
    name = "".join(c for c in name if c.isascii() and c.isalnum())
    imports = [helper.make_opsetid("", pool.opset), helper.make_opsetid(DOMAIN, 1)]
    nodes: list[onnx.NodeProto] = inner.nodes
    made = helper.make_function(DOMAIN, name, [formal.name], [last.name], nodes, imports)
    pool.names.functions.append(made)
    for _ in range(pool.rng.randint(1, 2)):
        y = pool.names.new("called")
        label = pool.names.new("call")
        pool.nodes.append(helper.make_node(name, [x.name], [y], label, domain=DOMAIN))
        pool.keep(y, FLOAT, x.shape, 32.0)
