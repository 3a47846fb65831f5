"""Invariants of a rewritten model's structure: valid, sorted, unique names, same interface."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

import onnx_ir as ir

from amp_rewrite.dtypes import LOW
from amp_rewrite.graph import elements
from amp_rewrite.graph.io.checker import checker_error
from invariants.violation import AnyGraph, Violation, graphs, named_subgraphs, place, scope_of

KeepIoTypes = bool | Collection[str]

_FIRST_IR_WITH_FREE_INITIALIZERS = 4
"""Before it every initializer had to be a graph input as well (onnx/docs/IR.md)."""


def check_checker(original: ir.Model, rewritten: ir.Model) -> Iterator[Violation]:
    """`onnx.checker.check_model(full_check=True)` passes wherever it passes on the original.

    Initializers over 64 KiB are given to it as graph inputs; that their data is whole is
    `initializers-intact`'s business.
    """
    error = checker_error(rewritten)
    if error is not None and checker_error(original) is None:
        yield Violation("checker", rewritten.graph.name or "graph", error)


def _interface(model: ir.Model, values: Collection[ir.Value]) -> list[ir.Value]:
    """Return what a caller sees: an initializer of IR 3 is an input in name only."""
    if (model.ir_version or 0) >= _FIRST_IR_WITH_FREE_INITIALIZERS:
        return list(values)
    return [v for v in values if not v.is_initializer()]


def check_io_contract(
    original: ir.Model, rewritten: ir.Model, *, keep_io_types: KeepIoTypes = True
) -> Iterator[Violation]:
    """Graph inputs and outputs keep names, order, shapes and types.

    An element of a float type may become low where `keep_io_types` does not hold: for every value
    if it is False, for those it does not name if it is a collection.
    """
    for kind in ("inputs", "outputs"):
        before = _interface(original, getattr(original.graph, kind))
        after = _interface(rewritten, getattr(rewritten.graph, kind))
        names = [v.name for v in before], [v.name for v in after]
        if names[0] != names[1]:
            message = f"were {names[0]}, are {names[1]}"
            yield Violation("io-contract", f"graph {kind}", message)
            continue
        for old, new in zip(before, after, strict=True):
            kept = keep_io_types if isinstance(keep_io_types, bool) else old.name in keep_io_types
            yield from _compare_interface(old, new, kept)


def _compare_interface(old: ir.Value, new: ir.Value, kept: bool) -> Iterator[Violation]:
    where = old.name or "(unnamed)"
    types = elements.from_ir(old.type), elements.from_ir(new.type)
    allowed = {types[0]}
    if not kept and types[0] in elements.FLOAT_TYPES:
        allowed |= {elements.with_element(types[0], low) for low in LOW.values()}
    if types[1] not in allowed:
        yield Violation("io-contract", where, f"type was {types[0]}, is {types[1]}")
    if old.shape != new.shape:
        yield Violation("io-contract", where, f"shape was {old.shape}, is {new.shape}")


def check_sorted(rewritten: ir.Model) -> Iterator[Violation]:
    """Every value is defined before it is used, in its graph or an enclosing one."""
    yield from _unsorted_values("", rewritten.graph, set())
    for function in rewritten.functions.values():
        yield from _unsorted_values(f"function {function.name}", function, set())


def _unsorted_values(scope: str, graph: AnyGraph, visible: set[ir.Value]) -> Iterator[Violation]:
    own = set(graph.inputs)
    if isinstance(graph, ir.Graph):
        own |= set(graph.initializers.values())
    visible |= own
    for node in graph:
        for value in node.inputs:
            if value is not None and value not in visible:
                message = f"reads {value.name} before it is defined"
                yield Violation("sorted", place(scope, node.name or node.op_type), message)
        for attribute, subgraph in named_subgraphs(node):
            yield from _unsorted_values(scope_of(scope, node, attribute), subgraph, visible)
        visible.update(node.outputs)
        own.update(node.outputs)
    for value in graph.outputs:
        if value not in visible:
            yield Violation("sorted", place(scope, value.name), "is an output and never defined")
    visible -= own


def check_unique_names(original: ir.Model, rewritten: ir.Model) -> Iterator[Violation]:
    """No node or value name is used again, unless the original does so as often.

    Values: within a graph and its enclosing graphs. Nodes: within the model; nodes without a name
    do not count.
    """
    for kind, repeated in (("node", _repeated_nodes), ("value", _repeated_values)):
        before = repeated(original)
        for name, times in repeated(rewritten).items():
            if times > before[name]:
                yield Violation("unique-names", name, f"{kind} name is used {times + 1} times")


def _repeated_nodes(model: ir.Model) -> Counter[str]:
    uses = Counter(node.name for _, graph in graphs(model) for node in graph if node.name)
    return Counter({name: times - 1 for name, times in uses.items() if times > 1})


def _repeated_values(model: ir.Model) -> Counter[str]:
    repeated = Counter[str]()
    for graph in (model.graph, *model.functions.values()):
        _count_repeated(graph, {}, repeated)
    return repeated


def _count_repeated(graph: AnyGraph, visible: dict[str, ir.Value], repeated: Counter[str]) -> None:
    """Count definitions of names that are visible already; `visible` is restored at the end."""
    own: list[str] = []
    for value in _defined_values(graph):
        if not value.name or visible.get(value.name) is value:
            continue
        if value.name in visible:
            repeated[value.name] += 1
            continue
        visible[value.name] = value
        own.append(value.name)
    for node in graph:
        for _, subgraph in named_subgraphs(node):
            _count_repeated(subgraph, visible, repeated)
    for name in own:
        del visible[name]


def _defined_values(graph: AnyGraph) -> Iterator[ir.Value]:
    yield from graph.inputs
    if isinstance(graph, ir.Graph):
        yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs
