"""The values that a node may name, and what to say when it names none of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx

from amp_rewrite.errors import GraphError
from amp_rewrite.graph.flat import ABSENT

Proto = onnx.GraphProto | onnx.FunctionProto


class OrderError(GraphError):
    """Nodes stand in another order than they run in, or twice: `mend_nodes` may mend that."""


class EarlyUseError(OrderError):
    """A node reads what a later one makes: of sorted nodes, there is a cycle."""


@dataclass(slots=True)
class Scope:
    """The names defined so far in one graph.

    Attributes:
        borrowed: The names that were looked up here and found further out.
    """

    proto: Proto
    where: str
    outer: Scope | None = None
    values: dict[str, int] = field(default_factory=dict)
    borrowed: set[str] = field(default_factory=set)
    current: int = 0

    def resolve(self, name: str) -> int:
        """Return the innermost value called `name` that is not of this graph; ABSENT for ""."""
        if not name:
            return ABSENT
        scope = self.outer
        while scope is not None:
            value = scope.values.get(name)
            if value is not None:
                self._borrow(name, scope)
                return value
            scope = scope.outer
        raise self._unresolved(name)

    def _borrow(self, name: str, lender: Scope) -> None:
        scope: Scope | None = self
        while scope is not None and scope is not lender:
            scope.borrowed.add(name)
            scope = scope.outer

    def define(self, name: str, value: int) -> None:
        """Add a value, if it has a name."""
        if type(name) is not str:
            raise GraphError("a name is not UTF-8", where=self.place(), found=repr(name))
        if not name:
            return
        if name in self.values:
            raise _defined_twice(self, name)
        if name in self.borrowed:
            raise GraphError(
                f"value {name!r} is defined after an outer value of that name was used",
                where=self.place(),
                remedy="rename one of them",
            )
        self.values[name] = value

    def place(self) -> str:
        """Return where reading has got to: the graph and, among its nodes, the node."""
        nodes = self.proto.node
        if self.current < len(nodes):
            return f"{self.where}, node {describe(nodes[self.current], self.current)}"
        return self.where

    def _unresolved(self, name: str) -> GraphError:
        """Return the error for a name that no scope has: cyclic, unsorted or undefined."""
        scope: Scope | None = self
        while scope is not None:
            nodes = enumerate(scope.proto.node)
            maker = next((describe(node, i) for i, node in nodes if name in node.output), None)
            if maker is not None:
                return EarlyUseError(
                    f"value {name!r} is used before it is made",
                    where=self.place(),
                    found=f"it is made later by {maker}",
                )
            scope = scope.outer
        return GraphError(
            f"undefined value {name!r}",
            where=self.place(),
            expected="a graph input, an initializer or the output of an earlier node",
        )


def describe(node: onnx.NodeProto, index: int) -> str:
    """Return a node's name and operator, or its position if it has no name."""
    name = repr(node.name) if node.name else f"#{index}"
    return f"{name} ({node.op_type})"


def _defined_twice(scope: Scope, name: str) -> OrderError:
    """Return the error for a value that a graph defines twice, with who defines it."""
    nodes = enumerate(scope.proto.node)
    makers = [describe(node, i) for i, node in nodes for made in node.output if made == name]
    makers = (["an input or initializer"] if len(makers) < 2 else []) + makers
    return OrderError(
        f"value {name!r} has two producers",
        where=scope.place(),
        found=f"it is defined twice: by {' and by '.join(makers)}",
        expected="every value to be produced once",
        remedy="rename one of them",
    )
