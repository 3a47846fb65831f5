"""What the painting passes know: the type graph, the lists, the target and the user's rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import onnx_ir as ir

from amp_rewrite.dtypes import DType
from amp_rewrite.graph import schemas
from amp_rewrite.graph.dataflow import TypeGraph, Vertex, VertexKind
from amp_rewrite.graph.elements import tensor, with_element
from amp_rewrite.graph.ports import schema_variable
from amp_rewrite.graph.tensors import MeasuredConstants
from amp_rewrite.graph.traits import Trait, having
from amp_rewrite.graph.versions import OLDEST_REWRITABLE_OPSET
from amp_rewrite.kernels import KernelTable
from amp_rewrite.oplists import Entry, ListName, NodeRule, OpLists
from amp_rewrite.paint.node_rules import NodeRules
from amp_rewrite.paint.painting import Color, Mark, Reason
from amp_rewrite.paint.sequence_clusters import Cluster, sequence_clusters

_NEVER_FORCED = having(Trait.RANDOM, Trait.CASTS, Trait.OPAQUE) | {"Constant"}
"""What UNSAFE_FORCE_ALL leaves alone: random numbers, constants, casts, and what is opaque."""


class _AttributeValues(Mapping[str, object]):
    """A node's attributes as plain values, read only where a list entry has a condition."""

    def __init__(self, node: ir.Node) -> None:
        self._attributes = node.attributes

    def __getitem__(self, name: str) -> object:
        return self._attributes[name].value

    def __iter__(self) -> Iterator[str]:
        return iter(self._attributes)

    def __len__(self) -> int:
        return len(self._attributes)


@dataclass(frozen=True)
class PaintContext:
    """Everything a pass may ask; it never changes while painting.

    Attributes:
        type_graph: The float32 dataflow.
        lists: The op lists, with level and environment applied.
        low: The low-precision type.
        kernels: The target's kernel table, or None for target "schema".
        rules: The user's rules about single nodes.
        infer_after_allow: Whether an infer vertex may follow an allow one (pass P4).
        variables: Values that are training variables; a plain read of one is not painted.
        converts_weights: Whether constants are converted in the file, rather than cast at run time.
        moves_casts: Whether casts move across clear operators (MoveCasts).
        low_ends: The inputs and outputs of the main graph that give up their float32 type.
        excluded: Vertices that must stay float32, with the mark that says why.
        measured: The statistics of the constants looked at.
    """

    type_graph: TypeGraph
    lists: OpLists
    low: DType
    kernels: KernelTable | None = None
    rules: NodeRules = field(default_factory=NodeRules)
    infer_after_allow: bool = True
    variables: frozenset[ir.Value] = frozenset()
    converts_weights: bool = True
    moves_casts: bool = True
    low_ends: frozenset[ir.Value] = frozenset()
    excluded: Mapping[Vertex, Mark] = field(default_factory=dict)
    measured: MeasuredConstants = field(default_factory=MeasuredConstants, repr=False)
    _entries: dict[ir.Node, Entry | None] = field(default_factory=dict, repr=False)
    _lists: dict[VertexKind, ListName | None] = field(default_factory=dict, repr=False)
    _supports: dict[VertexKind, Reason | None] = field(default_factory=dict, repr=False)
    _refusals: dict[ir.Node, Mark | None] = field(default_factory=dict, repr=False)

    @cached_property
    def clusters(self) -> tuple[Cluster, ...]:
        """The clusters of operators that handle one sequence."""
        return sequence_clusters(self.type_graph)

    def excluding(self, marks: Mapping[Vertex, Mark]) -> PaintContext:
        """Return a context in which these vertices stay float32 as well."""
        return replace(self, excluded={**self.excluded, **marks})

    def entry(self, node: ir.Node) -> Entry | None:
        """Return the list entry that covers a node, or None if no list knows its operator."""
        if node in self._entries:
            return self._entries[node]
        found = self._classify(node)
        self._entries[node] = found
        return found

    def list_of(self, vertex: Vertex) -> ListName | None:
        """Return the list of a vertex's node; None for an unlisted or unknown operator."""
        kind = vertex.kind
        if kind in self._lists:
            return self._lists[kind]
        entry = self.entry(vertex.node)
        found = None if entry is None or entry.list is ListName.UNLISTED else entry.list
        if self._alike(vertex.node):
            self._lists[kind] = found
        return found

    def refusal(self, vertex: Vertex) -> Mark | None:
        """Return why the pass may not touch a vertex, or None if it may."""
        if self._lawless:
            return None
        node = vertex.node
        if node not in self._refusals:
            self._refusals[node] = self._refuse(node)
        return self._refusals[node] or self.excluded.get(vertex) or self._by_node_rule(vertex)

    def process(self, vertex: Vertex) -> bool:
        """Tell whether the pass may touch a vertex."""
        return self._lawless or self.refusal(vertex) is None

    def unsupported(self, vertex: Vertex) -> Reason | None:
        """Return why the target cannot run a vertex in the low type, or None if it can."""
        kind = vertex.kind
        if kind not in self._supports:
            reason = self._unsupported_type(kind)
            if reason is None and not self._has_kernel(vertex):
                reason = Reason.NO_KERNEL
            self._supports[kind] = reason
        return self._supports[kind]

    def supports(self, vertex: Vertex) -> bool:
        """Tell whether schema and kernel table admit the low type for a vertex."""
        return self.unsupported(vertex) is None

    def is_variable_read(self, vertex: Vertex) -> bool:
        """Tell whether a vertex's node is an Identity that reads a training variable."""
        node = vertex.node
        return node.op_type == "Identity" and node.inputs[0] in self.variables

    def is_forced(self, vertex: Vertex) -> bool:
        """Tell whether the level UNSAFE_FORCE_ALL paints a vertex."""
        if not self.lists.force_all:
            return False
        node = vertex.node
        return node.domain == "" and node.op_type not in _NEVER_FORCED

    def _alike(self, node: ir.Node) -> bool:
        """Tell whether every node of an operator, at one opset, is on the same list."""
        return not self.rules.allow and (node.domain, node.op_type) not in self._conditional

    @cached_property
    def _conditional(self) -> frozenset[tuple[str, str]]:
        """The operators whose list depends on attributes."""
        return frozenset(entry.key for entry in self.lists.entries if entry.when)

    @cached_property
    def _lawless(self) -> bool:
        """Whether there is no rule about any single node or vertex."""
        rules = self.rules
        return not (rules.preserve or rules.deny or self.excluded or self.lists.node_rules)

    def _classify(self, node: ir.Node) -> Entry | None:
        pattern = self.rules.allowed_by(node.name or "") if self.rules.allow else None
        if pattern is not None:
            why = f"--allow-node {pattern}"
            return Entry(node.op_type, node.domain, ListName.ALLOW, why, where="option allow_nodes")
        if self._functions and node.op_identifier() in self._functions:
            return None
        opset = self.type_graph.opset_of(node)
        return self.lists.classify(node.domain, node.op_type, opset, _AttributeValues(node))

    @cached_property
    def _functions(self) -> frozenset[object]:
        return frozenset(self.type_graph.model.functions)

    @cached_property
    def _too_old(self) -> bool:
        """Whether the model's Cast cannot give the low type: before opset 7, or 13 for bfloat16."""
        opset = self.type_graph.model.graph.opset_imports.get("")
        if opset is None:
            return False
        cast = schemas.find("", "Cast", opset)
        admitted = frozenset() if cast is None else cast.variables["T2"]
        return opset < OLDEST_REWRITABLE_OPSET or tensor(self.low.ir) not in admitted

    @cached_property
    def _node_rules(self) -> Mapping[str, tuple[NodeRule, ...]]:
        by_name: dict[str, tuple[NodeRule, ...]] = {}
        for rule in self.lists.node_rules:
            by_name[rule.node] = (*by_name.get(rule.node, ()), rule)
        return by_name

    def _refuse(self, node: ir.Node) -> Mark | None:
        name = node.name or ""
        if name in self.rules.preserve:
            return _refusal(Reason.PRESERVED, f"node {name} is in preserve")
        pattern = self.rules.denied_by(name) if self.rules.deny else None
        if pattern is not None:
            return _refusal(Reason.NODE_RULE, f"deny_nodes pattern {pattern}")
        return None

    def _by_node_rule(self, vertex: Vertex) -> Mark | None:
        for rule in self._node_rules.get(vertex.node.name or "", ()):
            if rule.list is ListName.DENY and rule.variable in (None, *vertex.kind.variables):
                return _refusal(Reason.NODE_RULE, f"{rule.why} ({rule.where})")
        return None

    def _unsupported_type(self, kind: VertexKind) -> Reason | None:
        if self._too_old:
            return Reason.OPSET_TOO_OLD
        if kind.fixed:
            return Reason.FIXED_TYPE
        if kind.schema is None:
            return Reason.UNKNOWN_OPERATOR
        for variable in kind.variables:
            admitted = kind.schema.variables.get(schema_variable(variable), frozenset())
            if with_element(kind.known[variable], self.low) not in admitted:
                return Reason.TYPE_UNSUPPORTED
        return None

    def _has_kernel(self, vertex: Vertex) -> bool:
        if self.kernels is None:
            return True
        kind, node = vertex.kind, vertex.node
        types = low_types(kind.known, kind.variables, self.low)
        return self.kernels.has_kernel(node.domain, node.op_type, kind.opset, types)


def admitting_opset(vertex: Vertex, low: DType) -> int | None:
    """Return the first opset at which an operator's schema admits the low type, or None."""
    node, kind = vertex.node, vertex.kind
    newest = schemas.newest_opset(node.domain) or 0
    for opset in range(kind.opset + 1, newest + 1):
        schema = schemas.find(node.domain, node.op_type, opset)
        if schema is not None and all(
            with_element(kind.known[name], low)
            in schema.variables.get(schema_variable(name), frozenset())
            for name in kind.variables
        ):
            return opset
    return None


def low_types(known: Mapping[str, str], variables: tuple[str, ...], low: DType) -> dict[str, str]:
    """Return the types of a call in which `variables` have the low type, by schema variable."""
    types = {schema_variable(name): type_ for name, type_ in known.items()}
    for name in variables:
        types[schema_variable(name)] = with_element(known[name], low)
    return types


def _refusal(reason: Reason, detail: str) -> Mark:
    return Mark(Color.NONE, reason, None, detail)
