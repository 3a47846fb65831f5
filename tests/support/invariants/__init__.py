"""The invariants of a rewrite: what must hold between a model and its rewritten form.

Each is a function that returns the places where it does not hold; `INVARIANTS` names them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain

import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.graph.elements import tensor as tensor_type
from invariants.constants_faithful import (
    check_initializers_intact,
    check_no_unused_initializers,
)
from invariants.structure_valid import (
    KeepIoTypes,
    check_checker,
    check_io_contract,
    check_sorted,
    check_unique_names,
)
from invariants.survival import (
    check_functions,
    check_metadata,
    check_nodes,
    check_opaque_parts,
    check_value_infos,
)
from invariants.types_agree import check_types
from invariants.violation import Violation, graphs, is_added_cast, known_types, place


def _added_casts(model: ir.Model) -> Iterator[tuple[str, ir.Node]]:
    for scope, graph in graphs(model):
        for node in graph:
            if is_added_cast(node):
                yield scope, node


def _check_no_cast_chains(rewritten: ir.Model) -> Iterator[Violation]:
    """No added Cast reads another added Cast: float32 -> low -> float32 only loses precision.

    From one low type to another the way leads over float32, which loses nothing, where something
    else reads that.
    """
    types = known_types(rewritten)
    for scope, node in _added_casts(rewritten):
        middle = node.inputs[0]
        maker = None if middle is None else middle.producer()
        if middle is None or maker is None or not is_added_cast(maker):
            continue
        first = None if maker.inputs[0] is None else types.get(maker.inputs[0])
        ends = first, types.get(middle), _target(node)
        shared = len(middle.uses()) > 1 and len(set(ends)) == len(ends)
        if not (shared and ends[1] == tensor_type(FLOAT32.number)):
            yield Violation("no-cast-chains", place(scope, node.name), f"reads {middle.name}")


def _check_no_duplicate_casts(rewritten: ir.Model) -> Iterator[Violation]:
    """No two added Casts in one scope convert one value to one type."""
    seen: dict[tuple[str, ir.Value | None, str | None], str | None] = {}
    for scope, node in _added_casts(rewritten):
        key = scope, node.inputs[0], _target(node)
        if key in seen:
            message = f"does the same as {seen[key]}"
            yield Violation("no-duplicate-casts", place(scope, node.name), message)
        seen.setdefault(key, node.name)


def _check_no_useless_casts(rewritten: ir.Model) -> Iterator[Violation]:
    """Every added Cast changes the type, and something reads its output."""
    types = known_types(rewritten)
    for scope, node in _added_casts(rewritten):
        where, source, output = place(scope, node.name), node.inputs[0], node.outputs[0]
        source_type = None if source is None else types.get(source)
        if source_type is not None and source_type == _target(node):
            yield Violation("no-useless-casts", where, f"its input is {source_type} already")
        if not output.uses() and not output.is_graph_output():
            yield Violation("no-useless-casts", where, "nothing reads it")


def _target(node: ir.Node) -> str:
    """Return the type that a Cast casts to."""
    return tensor_type(node.attributes["to"].as_int())


__all__ = ["INVARIANTS", "Violation", "verify_invariants"]

Invariant = Callable[[ir.Model, ir.Model], Iterator[Violation]]


def _alone(check: Callable[[ir.Model], Iterator[Violation]]) -> Invariant:
    """Return a check of the rewritten model alone as one that is given both."""
    return lambda _, rewritten: check(rewritten)


INVARIANTS: Mapping[str, Invariant] = {
    "checker": check_checker,
    "io-contract": check_io_contract,
    "sorted": _alone(check_sorted),
    "unique-names": check_unique_names,
    "no-cast-chains": _alone(_check_no_cast_chains),
    "no-duplicate-casts": _alone(_check_no_duplicate_casts),
    "no-useless-casts": _alone(_check_no_useless_casts),
    "no-unused-initializers": check_no_unused_initializers,
    "initializers-intact": check_initializers_intact,
    "metadata": check_metadata,
    "nodes": check_nodes,
    "value-infos": check_value_infos,
    "functions": check_functions,
    "opaque-parts": check_opaque_parts,
    "types": check_types,
}
"""Every invariant by name: a function of (original, rewritten)."""


def verify_invariants(
    original: ir.Model, rewritten: ir.Model, *, keep_io_types: KeepIoTypes = True
) -> tuple[Violation, ...]:
    """Return every place where a rewritten model breaks an invariant; neither model changes."""
    io_contract = partial(check_io_contract, keep_io_types=keep_io_types)
    checks = {**INVARIANTS, "io-contract": io_contract}
    return tuple(chain.from_iterable(check(original, rewritten) for check in checks.values()))
