"""A model at an opset at which the sums that a target keeps low can be emulated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as ir

from amp_rewrite.dtypes import DType
from amp_rewrite.errors import GraphError, OptionError
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.io.convert_opset import convert_opset
from amp_rewrite.numerics.emulate.low_sums import OLDEST_OPSET, kept_low
from amp_rewrite.targets import Target

_Key = tuple[str | None, ...]


def raised_for_sums(model: ir.Model, target: Target, low: DType) -> ir.Model:
    """Return a model at an opset that will do: itself if it is new enough, or has no such sums.

    One that onnx's version converter cannot move stays as it is, too: its sums are float32.
    """
    if model.graph.opset_imports.get("", OLDEST_OPSET) >= OLDEST_OPSET or not kept_low(target, low):
        return model
    try:
        return convert_opset(model, OLDEST_OPSET)
    except (OptionError, GraphError):
        return model


def places_of(raised: Sequence[ir.Node], nodes: Sequence[ir.Node]) -> list[int]:
    """Return, for each node of a raised model, which node of the original it was.

    It is ABSENT for what the converter put around a node, which may take over its output. Nodes
    are in execution order, and those of several subgraphs may have equal names.
    """
    places = [ABSENT] * len(raised)
    free = dict.fromkeys(range(len(nodes)))
    for keys in (_calls, _outputs):
        nodes_of: dict[_Key, list[int]] = {}
        for i in reversed(free):
            for key in keys(nodes[i]):
                nodes_of.setdefault(key, []).append(i)
        for i, node in enumerate(raised):
            if places[i] == ABSENT:
                places[i] = _take(nodes_of, keys(node), free)
    _follow_readers(places, raised, nodes, free)
    return places


def _take(nodes_of: dict[_Key, list[int]], keys: Iterator[_Key], free: dict[int, None]) -> int:
    """Return the first node with one of some keys that is free, which it then is no more."""
    for key in keys:
        candidates = nodes_of.get(key, [])
        while candidates:
            i = candidates.pop()
            if i in free:
                del free[i]
                return i
    return ABSENT


def _follow_readers(
    places: list[int], raised: Sequence[ir.Node], nodes: Sequence[ir.Node], free: dict[int, None]
) -> None:
    """Place what became another operator with other names: it feeds the same reader as before."""
    index: dict[ir.Node | None, int] = {node: i for i, node in enumerate(nodes)}
    indices: dict[ir.Node | None, int] = {node: i for i, node in enumerate(raised)}
    for i in reversed(range(len(raised))):
        if places[i] == ABSENT:
            continue
        for before, after in zip(nodes[places[i]].inputs, raised[i].inputs, strict=False):
            source = None if before is None else index.get(before.producer())
            reader = None if after is None else indices.get(after.producer())
            if source in free and reader is not None and places[reader] == ABSENT:
                places[reader] = source
                del free[source]


def _calls(node: ir.Node) -> Iterator[_Key]:
    """Yield what tells a node that still calls the same operator."""
    yield from ((node.op_type, "output", key) for (key,) in _outputs(node))
    if node.name:
        yield node.op_type, "name", node.name


def _outputs(node: ir.Node) -> Iterator[_Key]:
    """Yield what tells a node that calls another operator by now."""
    yield from ((value.name,) for value in node.outputs if value.name)
