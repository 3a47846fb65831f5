"""16-bit values that a runtime never rounds, since it computes several nodes as one.

Evidence: silero_v4: error .0100 without, .0056 with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

import onnx_ir as ir

from amp_rewrite.dtypes import DType
from amp_rewrite.graph.constants import FIRST_IR_WITH_OVERRIDES
from amp_rewrite.graph.traits import operator
from amp_rewrite.kernels.rounding_table import OF_TENSORS, Followers, RoundingTable

BATCH_NORM = "BatchNormalization"

Low = Mapping[ir.Value | None, DType]


class Fused(NamedTuple):
    """Groups that are computed as one operator."""

    unrounded: Mapping[ir.Value, frozenset[ir.Node]] = MappingProxyType({})
    """16-bit value -> its readers that get it as it was computed."""
    folded: Mapping[ir.Node, tuple[ir.Node, ...]] = MappingProxyType({})
    """The last node whose constant goes into the weights of a product -> the chain that ends there,
    which begins with the product."""


_FOLDED = ("Add", "Sub", "Mul", "Div", BATCH_NORM)  # operators: of which OpenVINO folds constants
_FACTORS = ("Mul", "Div", BATCH_NORM)  # operators: of which OpenVINO folds constants
# operators: they read no numbers, and are constants once the shapes are fixed.
_NO_NUMBERS = ("Shape", "Size")


def find_fused(model: ir.Model, low: Low, table: RoundingTable) -> Fused:
    """Return the values inside groups of nodes that are computed as one.

    A chain after a product ends where a value is read twice, or is an output. Operators of one
    element each are one group with those that they read, unless a node outside has to come between,
    or a value of the group is read elsewhere too. Model-local functions are not looked into.
    """
    overridable = model.ir_version >= FIRST_IR_WITH_OVERRIDES
    defaults = {v for v in model.graph.inputs if overridable and v.is_initializer()}
    values: dict[ir.Value, frozenset[ir.Node]] = {}
    folded: dict[ir.Node, tuple[ir.Node, ...]] = {}
    for graph in (model.graph, *model.graph.subgraphs()):
        finder = _Finder(graph, defaults, low, table)
        finder.find()
        values |= finder.inside
        folded |= finder.folded
    return Fused(values, folded)


@dataclass
class _Finder:
    """The groups of one graph."""

    graph: ir.Graph
    defaults: set[ir.Value]
    low: Low
    table: RoundingTable
    inside: dict[ir.Value, frozenset[ir.Node]] = field(default_factory=dict)
    folded: dict[ir.Node, tuple[ir.Node, ...]] = field(default_factory=dict)
    group_of: dict[ir.Node, int] = field(default_factory=dict)
    members: dict[int, list[ir.Node]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.order = {node: index for index, node in enumerate(self.graph)}
        self.ends = set(self.graph.outputs)

    def find(self) -> None:
        """Find values and readers, of chains first."""
        chained: set[ir.Node] = set()
        for node in self.graph:
            if node in chained:
                continue
            if (followers := self._followers(node)) is not None:
                chained |= set(self._chain(node, followers))
        for node in self.graph:
            if node not in chained and self._is_together(node):
                self._join(node)
        for number, nodes in self.members.items():
            for node in nodes:
                readers = self._users(node.outputs[0])
                together = frozenset(n for n in readers if self.group_of.get(n) == number)
                if together:
                    self.inside[node.outputs[0]] = together

    def _followers(self, node: ir.Node) -> Followers | None:
        """Return the operators that are computed together with a node."""
        if node.domain != "" or node.outputs[0] not in self.low:
            return None
        constant = len(node.inputs) > 1 and self._is_constant(node.inputs[1])
        return self.table.behind.get(node.op_type if constant else node.op_type + OF_TENSORS)

    def _chain(self, node: ir.Node, followers: Followers) -> Iterator[ir.Node]:
        """Yield a node and what is computed together with it; note the values between."""
        yield node
        value, added = node.outputs[0], False
        is_folded = node.op_type in self.table.folded and self._is_constant(node.inputs[1])
        constants = [node] if is_folded else []
        while value not in self.ends:
            users = self._users(value)
            if len(users) != 1:
                return
            kind = self._kind(value, users[0], followers)
            if kind is None or (added and kind == "tensor"):
                return
            added |= kind == "tensor"
            is_folded = kind == "constant" and users[0].op_type in _FOLDED
            if constants and is_folded:
                constants.append(users[0])
                if users[0].op_type in _FACTORS:
                    self.folded.pop(constants[-2], None)
                    self.folded[users[0]] = tuple(constants)
            else:
                constants = []
            yield from users
            self.inside[value] = frozenset(users)
            value = users[0].outputs[0]

    def _kind(self, value: ir.Value, user: ir.Node, followers: Followers) -> str | None:
        """Return how a node can follow a product, by its other operands; None if it cannot."""
        if user.outputs[0] not in self.low:
            return None
        others = [v for v in user.inputs if v is not None and v is not value]
        if all(map(self._is_constant, others)):
            kind = "constant" if others else "alone"
        else:
            kind = "tensor"
        return kind if operator(user) in getattr(followers, kind) else None

    def _join(self, node: ir.Node) -> None:
        """Put an operator of one element into the groups of what it reads, or into a new one."""
        if node.outputs[0] not in self.low:
            return
        makers = [v.producer() for v in node.inputs if v is not None and v in self.low]
        groups = {self.group_of[m] for m in makers if m is not None and m in self.group_of}
        chosen = [g for g in sorted(groups) if self._admits(g, node)]
        number = chosen[0] if chosen else len(self.order) + self.order[node]
        for other in chosen[1:]:
            for member in self.members.pop(other):
                self.group_of[member] = number
                self.members[number].append(member)
        self.group_of[node] = number
        self.members.setdefault(number, []).append(node)

    def _admits(self, number: int, node: ir.Node) -> bool:
        """Return whether a node can join a group: nothing outside comes between, nor reads it."""
        members = set(self.members[number])
        first = min(self.order[member] for member in members)
        for member in members:
            value = member.outputs[0]
            outside = [user for user in self._users(value) if user not in members]
            if node in outside:
                continue
            if value in self.ends or not all(self._is_together(user) for user in outside):
                return False
        return not any(self._comes_from(v, members, first) for v in node.inputs)

    def _comes_from(self, value: ir.Value | None, members: set[ir.Node], first: int) -> bool:
        """Return whether a value needs a group by way of nodes outside of it."""
        pending, seen = [value], set[ir.Node]()
        while pending:
            maker = (value_read := pending.pop()) and value_read.producer()
            if maker is None or maker in seen or self.order.get(maker, -1) < first:
                continue
            if maker in members:
                if value_read is not value:
                    return True
                continue
            seen.add(maker)
            pending.extend(maker.inputs)
        return False

    def _is_together(self, node: ir.Node) -> bool:
        return operator(node) in self.table.together

    def _users(self, value: ir.Value) -> list[ir.Node]:
        users = dict.fromkeys(node for node, _ in value.uses())
        return [n for n in users if n.op_type not in _NO_NUMBERS]

    def _is_constant(self, value: ir.Value | None) -> bool:
        if value is None or value in self.defaults:
            return False
        maker = value.producer()
        return value.is_initializer() or (maker is not None and maker.op_type == "Constant")
