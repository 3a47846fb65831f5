"""Nodes as some tools leave them: in another order than they run in, or the same one twice.

ONNX Runtime's float16 tool appends the Casts that it adds; ONNX Runtime sorts nodes when it loads a
model, so nobody notices. onnxconverter-common adds a Cast for each reader of an input, and where
the readers have no names, the Casts are equal. Both are mended here, in the message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import onnx
from onnx import NodeProto

from amp_rewrite.base.printable import counted
from amp_rewrite.graph.proto.messages import graphs_of

_Graph = onnx.GraphProto | onnx.FunctionProto


class MendedNodes(NamedTuple):
    """Corrections of a model's nodes, made when it was read.

    Attributes:
        moved: How many nodes went in front of what reads them.
        doubled: The outputs of nodes that stood in the file twice.
    """

    moved: int = 0
    doubled: tuple[str, ...] = ()

    def words(self) -> str:
        """Return it in words, "" where nothing was done."""
        told = list[str]()
        if self.moved:
            verb = "was" if self.moved == 1 else "were"
            told.append(f"{counted(self.moved, 'node')} {verb} out of order")
        if self.doubled:
            told.append(f"{counted(len(self.doubled), 'node')} stood in the file twice")
        return ", ".join(told)


def mend_nodes(proto: onnx.ModelProto) -> MendedNodes:
    """Sort the nodes of all graphs of a model and remove repeated ones, in place.

    A node goes right in front of the first one that reads it; all others keep their order. Nodes
    of a cycle stay in some order. Of nodes that are equal, outputs included, the first one stays.
    """
    moved, doubled = 0, list[str]()
    for graph in (proto.graph, *proto.functions):
        for inner in _graphs(graph):
            doubled += _remove_repeated(inner)
            moved += _sort(inner)
    return MendedNodes(moved, tuple(doubled))


def _graphs(graph: _Graph) -> Iterator[_Graph]:
    waiting: list[_Graph] = [graph]
    while waiting:
        current = waiting.pop()
        yield current
        for node in current.node:
            waiting += graphs_of(node)


def _remove_repeated(graph: _Graph) -> list[str]:
    """Remove nodes that make what an equal one made before; return their first outputs."""
    first: dict[str, NodeProto] = {}
    repeated: dict[int, str] = {}
    for index, node in enumerate(graph.node):
        name = next(filter(None, node.output), "")
        earlier = first.setdefault(name, node) if name else node
        if earlier is not node and _spelled(earlier) == _spelled(node):
            repeated[index] = name
    for index in reversed(repeated):
        del graph.node[index]
    return list(repeated.values())


def _spelled(node: NodeProto) -> tuple[object, ...]:
    """Return what two nodes share only if they compute the same, whatever they are called."""
    attributes = sorted(a.SerializeToString(deterministic=True) for a in node.attribute)
    operator = node.op_type, node.domain, node.overload
    return (*operator, list(node.input), list(node.output), attributes)


def _sort(graph: _Graph) -> int:
    producers = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
    needed = [
        [producers[name] for name in names_needed(node) if name in producers] for node in graph.node
    ]
    order, moved = _order(needed)
    if moved:
        rank = {node: place for place, node in enumerate(order)}
        places = (rank[node] for node in range(len(order)))
        graph.node.sort(key=lambda _: next(places))
    return moved


def _order(needed: list[list[int]]) -> tuple[list[int], int]:
    """Return nodes in an order in which each follows those that it needs, and how many moved."""
    order, moved = list[int](), 0
    met = [False] * len(needed)
    for start in range(len(needed)):
        if met[start]:
            continue
        met[start] = True
        path = [(start, iter(needed[start]))]
        while path:
            node, left = path[-1]
            before = next((n for n in left if not met[n]), None)
            if before is not None:
                met[before] = True
                path.append((before, iter(needed[before])))
                continue
            path.pop()
            order.append(node)
            moved += bool(path)
    return order, moved


def names_needed(node: NodeProto) -> Iterable[str]:
    """Return the names that a node reads, and those that graphs inside it read from outside."""
    needed = dict.fromkeys(filter(None, node.input))
    for graph in graphs_of(node):
        needed |= dict.fromkeys(_borrowed_names(graph))
    return needed


def _borrowed_names(graph: onnx.GraphProto) -> Mapping[str, None]:
    """Return the names that a graph inside a node reads and does not define itself."""
    own = {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}
    own |= {name for node in graph.node for name in node.output}
    read = dict.fromkeys(name for node in graph.node for name in names_needed(node))
    return {name: None for name in read if name not in own}
