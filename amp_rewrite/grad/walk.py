"""Reverse-mode differentiation of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import onnx_ir as ir

from amp_rewrite.errors import GradientError
from amp_rewrite.grad.backward_loop import repeated
from amp_rewrite.grad.builder.broadcasting import sum_to
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.builder.known import is_float
from amp_rewrite.grad.loop_gradient import loop_gradients
from amp_rewrite.grad.rule import Gradient, Gradients, IndexedSlices
from amp_rewrite.grad.rules import FORMULAS, RULES
from amp_rewrite.grad.rules.formula import Formula
from amp_rewrite.grad.scatter import scatter_rows
from amp_rewrite.graph.names import place
from amp_rewrite.graph.traits import Trait, has, operator
from amp_rewrite.graph.traverse import captured, inputs_of, remove_unused_nodes


def gradients(
    b: Builder,
    seeds: Mapping[ir.Value, ir.Value],
    wrt: Sequence[ir.Value],
    *,
    sparse: bool = True,
    stops: dict[ir.Node, str] | None = None,
) -> list[Gradient | None]:
    """Return the gradient of each value of `wrt`.

    Only what lies between `wrt` and the seeds is differentiated. Gradients that meet at a value
    are added in the widest of their types; broadcasting is undone here and nowhere else.

    `seeds` has the gradients that arrive from outside. A gradient is None where no seed depends on
    the value; if `sparse`, it is IndexedSlices for a table that the graph does not compute and of
    which it only gathers rows. With `stops`, an operator that has no rule for its use blocks the
    gradient and is added there with the reason, also one inside a branch or a loop.

    Raises:
        GradientError: An operator in between has no rule, or its rule cannot handle this use, and
            there are no `stops`.
    """
    start, kept = b.mark(), set[ir.Value]()
    nodes = list(b.graph)
    b.varying, b.stops = depending_on(nodes, wrt), stops
    arrived: dict[ir.Value, list[Gradient]] = {v: [g] for v, g in seeds.items()}
    try:
        for node in reversed(nodes):
            if not _passes(b, node, arrived):
                continue
            b.source = node
            try:
                _pass_on(b, node, arrived)
            except GradientError as error:
                if stops is None:
                    raise
                found = "" if error.found is None else f": {error.found}"
                stops[b.originals.get(node, node)] = f"{error.what}{found}"
        b.source = None
        totals = [_total(b, arrived, v, sparse=sparse and not _is_computed(b, v)) for v in wrt]
        kept.update(v for g in totals if g is not None for v in _parts(g))
        return totals
    finally:  # a failed walk leaves no nodes
        b.source, b.varying, b.stops = None, set(), None
        b.remove_unused(kept, start)


def depending_on(nodes: Iterable[ir.Node], wrt: Iterable[ir.Value]) -> set[ir.Value]:
    """Return the floating-point values that depend on `wrt` through differentiable operators."""
    varying = set(wrt)
    for node in nodes:
        if has(node, Trait.NO_GRADIENT):
            continue
        if any(v in varying for v in inputs_of(node)):
            varying.update(v for v in node.outputs if is_float(v, unknown=True))
    return varying


def _passes(b: Builder, node: ir.Node, arrived: Mapping[ir.Value, object]) -> bool:
    """Return whether a gradient has reached a node from which a value of `wrt` is reached."""
    if has(node, Trait.NO_GRADIENT):
        return False
    reached = any(v in b.varying and v in arrived for v in node.outputs)
    return reached and any(v in b.varying for v in inputs_of(node))


def _is_computed(b: Builder, value: ir.Value) -> bool:
    """Return whether a node of the builder's graph computes a value."""
    node = value.producer()
    return node is not None and node.graph is b.graph


def _total(
    b: Builder, arrived: dict[ir.Value, list[Gradient]], value: ir.Value, *, sparse: bool = False
) -> Gradient | None:
    """Return the sum of the gradients that have arrived at a value, and keep it in their place."""
    parts = arrived.get(value)
    if not parts:
        return None
    total = accumulate(b, parts, value, sparse=sparse)
    arrived[value] = [total]
    return total


def _pass_on(b: Builder, node: ir.Node, arrived: dict[ir.Value, list[Gradient]]) -> None:
    """Add the gradients of a node's inputs to those that have arrived."""
    received = [_total(b, arrived, v) for v in node.outputs]
    for value, gradient in _apply(b, node, received):
        arrived.setdefault(value, []).append(gradient)


def _apply(
    b: Builder, node: ir.Node, received: Sequence[Gradient | None]
) -> Sequence[tuple[ir.Value, Gradient]]:
    """Return the gradients that a node passes on, each in the shape of its value."""
    dense = [g if isinstance(g, ir.Value) else None for g in received]
    control = _CONTROL.get(operator(node))
    if control is not None:
        return control(b, node, dense, [v for v in captured(node) if v in b.varying])
    gradients_in = _by_rule(b, node, dense)
    keeps_shape = has(node, Trait.NOT_BROADCAST)
    passed: list[tuple[ir.Value, Gradient]] = []
    for index, (value, gradient) in enumerate(zip(node.inputs, gradients_in, strict=False)):
        if value is None or gradient is None or value not in b.varying:
            continue
        if isinstance(gradient, ir.Value):
            is_data = keeps_shape and index == 0 and b.rank(gradient) == b.rank(value)
            gradient = b.shaped_like(gradient, value) if is_data else sum_to(b, gradient, value)
        passed.append((value, gradient))
    return passed


def _by_rule(b: Builder, node: ir.Node, received: Sequence[ir.Value | None]) -> Gradients:
    formula, rule = FORMULAS.get(operator(node)), RULES.get(operator(node))
    if formula is not None:
        return _by_formula(b, node, received, formula)
    if rule is None:
        raise GradientError(
            "an operator has no gradient rule",
            where=place(node),
            remedy="express it in operators that have one, make it a model-local function, or "
            "leave the variables before it out of var_list",
        )
    return rule(node, received, b)


def _by_formula(
    b: Builder, node: ir.Node, received: Sequence[ir.Value | None], formula: Formula
) -> Gradients:
    """Return the gradients of a node's inputs through the nodes that its formula adds."""
    start, varying = len(b.added), b.varying
    arrived: dict[ir.Value, list[Gradient]] = {}
    for own, y, gradient in zip(node.outputs, formula(node, b), received, strict=False):
        if gradient is not None and y is None:
            raise GradientError("an output has no gradient, and one arrives", where=place(node))
        if gradient is not None and y is not None:
            arrived[b.shaped_like(y, own)] = [gradient]
    nodes = b.added[start:]
    wanted = {v for v in node.inputs if v is not None and v in varying}
    b.varying = varying | depending_on(nodes, wanted)
    try:
        for added in reversed(nodes):
            if _passes(b, added, arrived):
                _pass_on(b, added, arrived)
    finally:
        b.varying = varying
    found = {v: _total(b, arrived, v, sparse=not _is_computed(b, v)) for v in wanted}
    # A value that is read twice gets its gradient once.
    return [None if v is None else found.pop(v, None) for v in node.inputs]


def _parts(gradient: Gradient) -> Iterable[ir.Value]:
    parts = gradient if isinstance(gradient, IndexedSlices) else (gradient,)
    return [value for value in parts if value is not None]


def if_gradients(
    b: Builder, node: ir.Node, received: Sequence[ir.Value | None], wanted: Sequence[ir.Value]
) -> list[tuple[ir.Value, ir.Value]]:
    """Return the gradients of the outer values that the branches of an If use.

    With y = then(x) if c else else(x): dx = then'(x)^T dy if c else else'(x)^T dy, an If on the
    same condition. Its branches compute the forward branch again, since values inside a branch
    cannot be read from outside, and then differentiate it; what a branch does not use gets zeros.

    Raises:
        GradientError: A branch has an operator without a rule, or draws random numbers.
    """
    if not wanted:
        return []
    then = _branch(b, node, "then_branch", received, wanted)
    other = _branch(b, node, "else_branch", received, wanted)
    results = b.op("If", node.inputs[0], outputs=len(wanted), then_branch=then, else_branch=other)
    outputs = results if isinstance(results, tuple) else (results,)
    for value, gradient in zip(wanted, outputs, strict=True):
        gradient.type = ir.TensorType(b.type_of(value))
        b.shaped_like(gradient, value)
    return list(zip(wanted, outputs, strict=True))


def _branch(
    b: Builder,
    node: ir.Node,
    name: str,
    received: Sequence[ir.Value | None],
    wanted: Sequence[ir.Value],
) -> ir.Graph:
    branch = node.attributes[name].as_graph()
    body = repeated(b, branch)
    inner = b.child(body)
    seeds: dict[ir.Value, ir.Value] = {}
    for value, gradient in zip(body.outputs, received, strict=True):
        if gradient is not None:
            seeds[value] = inner.add(seeds[value], gradient) if value in seeds else gradient
    outputs: list[ir.Value] = []
    inner_gradients = gradients(inner, seeds, wanted, sparse=False, stops=b.stops)
    for value, gradient in zip(wanted, inner_gradients, strict=True):
        if not isinstance(gradient, ir.Value):
            gradient = inner.zeros_like(value)
        # An output of a branch is computed in it, and is one output only.
        outputs.append(inner.op("Identity", gradient))
    body.outputs.clear()
    body.outputs.extend(outputs)
    body.name = inner.free_name(f"{node.name or 'if'}/{name}")
    remove_unused_nodes(body)
    return body


# Operators with graphs inside, which are walked too.
_CONTROL = {"If": if_gradients, "Loop": loop_gradients}


def accumulate(b: Builder, parts: Sequence[Gradient], value: ir.Value, *, sparse: bool) -> Gradient:
    """Return the sum of gradients in the type of `value`, added in the widest type among them.

    The sum is IndexedSlices if `sparse` and all parts are.
    """
    if value.dtype is None:  # onnx infers nothing for operators of others
        first = parts[0]
        value.type = first.type if isinstance(first, ir.Value) else first.values.type
    if len(parts) == 1 and isinstance(parts[0], ir.Value):
        return b.cast_like(parts[0], value)
    slices = [p for p in parts if isinstance(p, IndexedSlices)]
    dense = [p for p in parts if isinstance(p, ir.Value)]
    if slices and not dense and sparse:
        return _concatenated(b, slices, value)
    total = b.cast_like(_sum(b, dense, value), value) if dense else b.zeros_like(value)
    if slices:
        rows = _concatenated(b, slices, value)
        total = scatter_rows(b, total, rows.indices, rows.values)
    return b.shaped_like(total, value)


def _sum(b: Builder, parts: Sequence[ir.Value], value: ir.Value) -> ir.Value:
    if len(parts) == 1:
        return parts[0]
    types = [b.type_of(v) for v in (*parts, value)]
    widest = max(types, key=lambda t: t.itemsize)
    wide = [b.cast(p, widest) for p in parts]
    return b.add(wide[0], wide[1]) if len(wide) == 2 else b.op("Sum", *wide)


def _concatenated(b: Builder, parts: Sequence[IndexedSlices], value: ir.Value) -> IndexedSlices:
    return IndexedSlices(
        b.cast_like(b.concat([p.values for p in parts], 0), value),
        b.concat([p.indices for p in parts], 0),
        parts[0].dense_shape,
    )
