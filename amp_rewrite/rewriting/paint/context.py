"""The context of painting passes: the type graph, the lists, the target and the user's rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from amp_rewrite.dtypes import BFLOAT16, DType
from amp_rewrite.graph import schemas
from amp_rewrite.graph.dataflow import TypeGraph, VertexKind, vertices_in
from amp_rewrite.graph.elements import tensor, with_element
from amp_rewrite.graph.flat import ABSENT, Array
from amp_rewrite.graph.modules import node_aliases, nodes_by_name
from amp_rewrite.graph.ports import schema_variable
from amp_rewrite.graph.scaled_values import scaled_values
from amp_rewrite.graph.traits import Trait, has, having
from amp_rewrite.graph.versions import OLDEST_REWRITABLE_OPSET
from amp_rewrite.kernels.kernel_table import KernelTable
from amp_rewrite.oplists import Entry, ListName, NodeRule, OpLists
from amp_rewrite.oplists.entries import OWN_LIST
from amp_rewrite.rewriting.paint.groups import FusedGroup
from amp_rewrite.rewriting.paint.node_rules import NOTHING_FOUND, Findings, NodeRules
from amp_rewrite.rewriting.paint.painting import Color, Mark, Painting, PassReason, Reason
from amp_rewrite.rewriting.paint.value_facts import ValueFacts
from amp_rewrite.targets import Target

_CONSTANT = ("", "Constant")

# The function that stands for MeanVarianceNormalization has float32 constants, and so
# has a TreeEnsemble, as attributes.
_NEVER_LOW = having(Trait.OPAQUE) | {"MeanVarianceNormalization", "TreeEnsemble"}
"""Operators that stay float32 whatever the schema allows: in 16 bits they are invalid or differ."""

_INVALID_BODIES = {("Clip", BFLOAT16.name): 16}
"""Operator and low type -> the opset from which the function that stands for the operator is valid.

A runtime without a kernel takes the function: Clip's has a Where, which admits bfloat16 from opset
16 on. ONNX Runtime 1.32.0 does not load such a model."""

# operators: what ONNX Runtime does not load in float16.
_NEVER_FORCED = having(Trait.RANDOM, Trait.CASTS) | {"Constant", "EyeLike", "MelWeightMatrix"}
"""Operators that UNSAFE_FORCE_ALL leaves alone, too: random numbers, constants and casts."""

_DOMAINS = {False: ("",), True: ("", "com.microsoft")}
"""Whether nothing may be float32 -> the domains whose operators are painted whatever their list."""


@dataclass(frozen=True)
class PaintContext:
    """Everything a pass may ask; it never changes while painting.

    A question to every vertex is answered by a mask: an array of bool, by vertex.

    Attributes:
        type_graph: The float32 dataflow.
        kernels: The target's kernel table, or None for target "schema".
        rules: The user's rules about single nodes.
        own: The user's rules about what became low: name -> a function that paints anew.
        kept: What those keep in float32 that ask before anything is painted.
        infer_after_allow: Whether an infer vertex may follow an allow one (pass P4).
        variables: Values that are training variables; a plain read of one is not painted.
        converts_weights: Whether constants are converted in the file, rather than cast at run time.
        adds_low: The operators, as (domain, op), whose kernels add up in the low type.
        adds_fused: Those of them that round a product and the sum that it joins once.
        indexes_low: The operators whose kernels compute the places of results in the low type.
        squares_low: The operators whose kernels keep a variance in the low type.
        low_ends: The inputs and outputs of the main graph that give up their float32 type.
        wide_ends: Those that would, but for what the model makes of them -> what that is.
        groups: The groups that the target computes as one operator each.
        cut: Operators whose constants the target does not round to nearest -> which constant.
        excluded: Vertices that must stay float32, with the mark that says why.
        joined: Vertices that become low with their group, with the mark that says so.
        given: A mask of the vertices that somebody made low, where that is to be kept as far as it
            does no harm; None where the painting is to be found.
        only_low: Whether no list may keep anything in float32, as for devices without float32.
        found: What data or a search have shown of the model.
        target: The target; None where the painting is of no model for one.
    """

    type_graph: TypeGraph
    lists: OpLists
    low: DType
    kernels: KernelTable | None = None
    rules: NodeRules = field(default_factory=NodeRules)
    own: Mapping[str, Callable[[PaintContext, Painting], Painting]] = field(default_factory=dict)
    kept: Mapping[int, Mark] = field(default_factory=dict[int, Mark])
    infer_after_allow: bool = True
    variables: frozenset[int] = frozenset()
    converts_weights: bool = True
    moves_casts: bool = True
    adds_low: frozenset[tuple[str, str]] = frozenset()
    adds_fused: frozenset[tuple[str, str]] = frozenset()
    indexes_low: frozenset[tuple[str, str]] = frozenset()
    squares_low: frozenset[tuple[str, str]] = frozenset()
    low_ends: frozenset[int] = frozenset()
    wide_ends: Mapping[int, str] = field(default_factory=dict[int, str])
    groups: tuple[FusedGroup, ...] = ()
    cut: Mapping[str, str] = field(default_factory=dict[str, str])
    excluded: Mapping[int, Mark] = field(default_factory=dict[int, Mark])
    joined: Mapping[int, Mark] = field(default_factory=dict[int, Mark])
    given: Array | None = field(default=None, repr=False)
    only_low: bool = False
    found: Findings = NOTHING_FOUND
    target: Target | None = None
    values: ValueFacts = field(kw_only=True, repr=False)
    _entries: dict[int, Entry | None] = field(default_factory=dict[int, "Entry | None"], repr=False)
    _refusals: dict[int, Mark | None] = field(default_factory=dict[int, "Mark | None"], repr=False)
    _masks: dict[str, Array] = field(default_factory=dict[str, Array], repr=False)

    @cached_property
    def clusters(self) -> tuple[tuple[int, ...], ...]:
        """The clusters of operators that handle one sequence, by their first member.

        What a handle edge connects is low or nothing is.
        """
        graph = self.type_graph
        members = vertices_in(
            graph.having(Trait.SEQUENCE)
            | graph.where(
                lambda k: has(k.operator, Trait.PASSES_SEQUENCE) and k.type != "tensor(float)"
            )
        )
        if not members and not graph.handles:
            return ()
        import networkx as nx

        handles = nx.Graph(graph.handles)
        handles.add_nodes_from(members)
        return tuple(sorted(tuple(sorted(c)) for c in nx.connected_components(handles)))

    @property
    def force_all(self) -> bool:
        """Whether every operator is painted, whatever its list."""
        return self.lists.is_unsafe or self.only_low

    @property
    def estimates_count(self) -> bool:
        """Whether what a value is likely to reach may keep something in float32."""
        return not (self.only_low and self.found.measured)

    @property
    def node_rules(self) -> tuple[NodeRule, ...]:
        """The rules about nodes that lists have, and those that were found."""
        return (*self.lists.node_rules, *self.found.rules)

    def excluding(self, marks: Mapping[int, Mark]) -> PaintContext:
        """Return a context in which these vertices stay float32 as well."""
        return replace(self, excluded={**self.excluded, **marks})

    def joining(self, marks: Mapping[int, Mark]) -> PaintContext:
        """Return a context in which these vertices become low as well, unless they are excluded."""
        return replace(self, joined={**self.joined, **marks})

    def fuses(self, fused: FusedGroup, operand_type: DType, result: DType) -> bool:
        """Tell whether the target computes a group as one with these types; see `Fusion.runs`."""
        opset = self.type_graph.flat.opsets.get("", 1)
        return fused.fusion.runs(self.low, opset, operand_type, result)

    def entry(self, node: int) -> Entry | None:
        """Return the list entry that covers a node, or None if no list knows its operator."""
        operator = self.type_graph.flat.operator[node]
        if self._allows or operator in self._conditional:
            return self._classify(node)
        if operator not in self._entries:
            self._entries[operator] = self._classify(node)
        return self._entries[operator]

    def on(self, *names: ListName) -> Array:
        """Return a mask of the vertices whose operators are on one of some lists."""
        return np.isin(self._listed, [_CODES[name] for name in names])

    def list_of(self, vertex: int) -> ListName | None:
        """Return the list of a vertex's node; None for an unlisted or unknown operator."""
        return _NAMES[self._listed[vertex]]

    def marks_of_entries(
        self, vertices: Iterable[int], color: Color, reason: PassReason
    ) -> dict[int, Mark]:
        """Return a mark for each of some listed vertices that says why it is on its list."""
        mark_of: dict[tuple[str, str] | None, Mark] = {}
        marks: dict[int, Mark] = {}
        nodes = self.type_graph.nodes
        for vertex in vertices:
            entry = self.entry(nodes[vertex])
            said = None if entry is None else (entry.where, entry.why)
            if said not in mark_of:
                why = None if entry is None else entry.why
                mark_of[said] = _denied(entry, color) or Mark(color, reason, None, why)
            marks[vertex] = mark_of[said]
        return marks

    def asked(self, vertex: int) -> Mark | None:
        """Return how the user asked for a vertex in float32, or None."""
        if not self._is_asked:
            return None
        by_name = self._refused_by_rules(self.type_graph.nodes[vertex])
        entry = None if self.force_all else self.entry(self.type_graph.nodes[vertex])
        return by_name or self.kept.get(vertex) or _denied(entry, Color.NONE)

    @cached_property
    def _is_asked(self) -> bool:
        """Whether the user asked for anything in float32, be it nowhere in the model."""
        rules, entries = self.rules, self.lists.entries
        denied = not self.force_all and any(e.asked and e.list is ListName.DENY for e in entries)
        return bool(rules.preserve or rules.deny or self.kept or denied)

    def refusal(self, vertex: int) -> Mark | None:
        """Return why the pass may not touch a vertex, or None if it may."""
        if self._lawless:
            return None
        return (
            self._refused_by_rules(self.type_graph.nodes[vertex])
            or self.kept.get(vertex)
            or self.excluded.get(vertex)
            or self._by_node_rule(vertex)
        )

    @cached_property
    def processable(self) -> Array:
        """A mask of the vertices that the pass may touch."""
        n_vertices = len(self.type_graph)
        if self._lawless:
            return np.ones(n_vertices, np.bool_)
        return np.array([self.refusal(v) is None for v in range(n_vertices)], np.bool_)

    def unsupported(self, vertex: int) -> PassReason | None:
        """Return why the target cannot run a vertex in the low type, or None if it can."""
        return self._verdicts[int(self.type_graph.kind[vertex])]

    @property
    def supported(self) -> Array:
        """A mask of the vertices for which schema and kernel table admit the low type."""
        return self._remembered(
            "supported",
            lambda: np.array([v is None for v in self._verdicts], np.bool_)[self.type_graph.kind],
        )

    @cached_property
    def seeds(self) -> Array:
        """A mask of the vertices at which the painting starts, if the pass may touch them."""
        return self.on(ListName.ALLOW) | self.forced | self.type_graph.mask(self.joined)

    @cached_property
    def forced(self) -> Array:
        """A mask of the vertices that are painted whatever their list."""
        force_all, domains = self.force_all, _DOMAINS[self.only_low]
        return self.type_graph.where(
            lambda k: (
                force_all
                and k.operator.domain in domains
                and k.operator.op_type not in _NEVER_FORCED | _NEVER_LOW
            )
        )

    @cached_property
    def scaled(self) -> Array:
        """A mask of the vertices that make or read a value of which metadata say it was scaled."""
        graph, flat = self.type_graph, self.type_graph.flat
        names = scaled_values(flat.metadata_props)
        values = [v for v, name in enumerate(flat.value_names) if name in names] if names else []
        ends = (v for value in values for v in (graph.source[value], *graph.readers(value)))
        return graph.mask(vertex for vertex in ends if vertex != ABSENT)

    @cached_property
    def variable_reads(self) -> Array:
        """A mask of the vertices whose node is an Identity that reads a training variable."""
        graph, flat = self.type_graph, self.type_graph.flat
        nodes = [n for v in self.variables for n in flat.readers(v)]
        identities = [n for n in nodes if flat.called(n).op_type == "Identity"]
        return graph.mask(v for n in identities for v in graph.vertices_of(n))

    def _remembered(self, name: str, make: Callable[[], Array]) -> Array:
        """Return a mask that no exclusion and no rule about nodes changes; it is made once."""
        if name not in self._masks:
            self._masks[name] = make()
        return self._masks[name]

    def with_findings(self, found: Findings) -> PaintContext:
        """Return the context of a painting that knows what data or a search have shown."""
        context = replace(self, found=found)
        if not context._allows or self.rules.allow:
            return context
        return replace(context, _entries={}, _masks={})  # which know no allowed nodes

    @property
    def _listed(self) -> Array:
        """By vertex, the code of its list."""
        return self._remembered("listed", self._list_codes)

    def _list_codes(self) -> Array:
        graph, flat = self.type_graph, self.type_graph.flat
        if self._allows or self._conditional.intersection(flat.operator):
            codes = [_code(self.entry(node)) for node in range(flat.n_nodes)]
            return np.array(codes, np.int8)[graph.node]
        first = {operator: node for node, operator in reversed(list(enumerate(flat.operator)))}
        numbers = range(len(flat.operators))
        codes = [_code(self.entry(first[i])) if i in first else 0 for i in numbers]
        return np.array(codes, np.int8)[np.array(flat.operator, np.int64)][graph.node]

    @cached_property
    def _conditional(self) -> frozenset[int]:
        """The numbers of the operators whose list depends on attributes."""
        keys = {entry.key for entry in self.lists.entries if entry.when}
        operators = enumerate(self.type_graph.flat.operators)
        return frozenset(i for i, o in operators if (o.domain, o.op_type) in keys)

    @cached_property
    def _lawless(self) -> bool:
        """Whether there is no rule about any single node or vertex."""
        named = self.rules.preserve or self.rules.deny or self.node_rules
        return not (named or self.kept or self.excluded)

    def is_allowed(self, vertex: int) -> bool:
        """Tell whether the user allows the node of a vertex."""
        return self._allows and self._allowing(self.type_graph.nodes[vertex]) is not None

    def unless_allowed(self, marks: Mapping[int, Mark]) -> Mapping[int, Mark]:
        """Return the marks of vertices whose nodes the user does not allow."""
        if not self._allows:
            return marks
        return {vertex: mark for vertex, mark in marks.items() if not self.is_allowed(vertex)}

    def _classify(self, node: int) -> Entry | None:
        flat = self.type_graph.flat
        called = flat.called(node)
        allowed = self._allowing(node) if self._allows else None
        # A Cast follows its neighbours (retarget-casts), the ones of an earlier rewrite among them.
        if allowed is not None and called[:2] != ("", "Cast"):
            why, where = allowed
            return Entry(called.op_type, called.domain, ListName.ALLOW, why, where=where)
        if flat.is_call(node):
            return None
        asks = flat.operator[node] in self._conditional
        values = {n: a.value for n, a in flat.attributes(node).items()} if asks else {}
        return self.lists.classify(called.domain, called.op_type, flat.opset_of(node), values)

    @cached_property
    def _allows(self) -> bool:
        """Whether the user, a list or a search allows any single node."""
        found = any(rule.list is ListName.ALLOW for rule in self.node_rules)
        return found or bool(self.rules.allow)

    def _allowing(self, node: int) -> tuple[str, str] | None:
        """Return why a node is allowed, and where that is said; None if it is not."""
        aliases = node_aliases(self.type_graph.flat, node) if self.rules.allow else ()
        pattern = self.rules.allowed_by(aliases)
        if pattern is not None:
            return f"--allow-node {pattern}", "option allow_nodes"
        rules = self._node_rules.get(node, ())
        return next(((r.why, r.where) for r in rules if r.list is ListName.ALLOW), None)

    @cached_property
    def _too_old(self) -> bool:
        """Whether the model's Cast cannot give the low type: before opset 7, or 13 for bfloat16."""
        opset = self.type_graph.flat.opsets.get("")
        if opset is None:
            return False
        cast = schemas.find("", "Cast", opset)
        admitted = frozenset[str]() if cast is None else cast.variables["T2"]
        return opset < OLDEST_REWRITABLE_OPSET or tensor(self.low.number) not in admitted

    @cached_property
    def _node_rules(self) -> Mapping[int, tuple[NodeRule, ...]]:
        nodes = nodes_by_name(self.type_graph.flat, (rule.node for rule in self.node_rules))
        by_node: dict[int, tuple[NodeRule, ...]] = {}
        for rule in self.node_rules:
            for node in nodes.get(rule.node, ()):
                by_node[node] = (*by_node.get(node, ()), rule)
        return by_node

    def _refused_by_rules(self, node: int) -> Mark | None:
        if node not in self._refusals:
            flat, refusal = self.type_graph.flat, None
            name = flat.node_names[node]
            if name in self.rules.preserve:
                refusal = _refusal(Reason.PRESERVED, f"node {name} is in preserve")
            elif self.rules.deny and (pattern := self.rules.denied_by(node_aliases(flat, node))):
                refusal = _refusal(Reason.NODE_RULE, f"deny_nodes pattern {pattern}")
            self._refusals[node] = refusal
        return self._refusals[node]

    def _by_node_rule(self, vertex: int) -> Mark | None:
        for rule in self._node_rules.get(self.type_graph.nodes[vertex], ()):
            variables = self.type_graph.kind_of(vertex).variables
            if rule.list is ListName.DENY and rule.variable in (None, *variables):
                return _refusal(Reason.NODE_RULE, f"{rule.why} ({rule.where})")
        return None

    @cached_property
    def _verdicts(self) -> list[PassReason | None]:
        """By kind of vertex, why the target cannot run it in the low type."""
        return [self._unsupported(kind) for kind in self.type_graph.kinds]

    def _unsupported(self, kind: VertexKind) -> PassReason | None:
        if self._too_old:
            return Reason.OPSET_TOO_OLD
        if kind.fixed:
            return Reason.FIXED_TYPE
        if kind.schema is None:
            return Reason.UNKNOWN_OPERATOR
        domain, op_type, _ = kind.operator
        if op_type in _NEVER_LOW:
            return Reason.TYPE_UNSUPPORTED
        for variable in kind.variables:
            admitted = kind.schema.variables.get(schema_variable(variable), frozenset())
            if with_element(kind.known[variable], self.low) not in admitted:
                return Reason.TYPE_UNSUPPORTED
        if self.kernels is None:  # a runtime without a kernel takes the operator's function
            valid_from = 0 if domain else _INVALID_BODIES.get((op_type, self.low.name), 0)
            return Reason.TYPE_UNSUPPORTED if kind.opset < valid_from else None
        if (domain, op_type) in self.type_graph.flat.customs:
            return None  # whoever lists it knows
        types = low_types(kind.known, kind.variables, self.low)
        has_kernel = self.kernels.has_kernel(domain, op_type, kind.opset, types)
        return None if has_kernel else Reason.NO_KERNEL


_NAMES: tuple[ListName | None, ...] = (
    None,
    *(name for name in ListName if name is not ListName.UNLISTED),
)
"""Code -> list; an operator that was left off the lists is on none."""

_CODES = {name: code for code, name in enumerate(_NAMES)}


def _code(entry: Entry | None) -> int:
    """Return the code of an entry's list; a constant is low for its readers, not by a list."""
    is_constant = entry is not None and entry.key == _CONSTANT and entry.list is not ListName.DENY
    return 0 if entry is None or is_constant else _CODES.get(entry.list, 0)


def admitting_opset(kind: VertexKind, low: DType) -> int | None:
    """Return the first opset at which an operator's schema admits the low type, or None."""
    domain, op_type, _ = kind.operator
    newest = schemas.newest_opset(domain) or 0
    for opset in range(kind.opset + 1, newest + 1):
        schema = schemas.find(domain, op_type, opset)
        if schema is not None and all(
            with_element(kind.known[name], low)
            in schema.variables.get(schema_variable(name), frozenset())
            for name in kind.variables
        ):
            return opset
    return None


def low_types(type_of: Mapping[str, str], variables: tuple[str, ...], low: DType) -> dict[str, str]:
    """Return the types of a call in which `variables` have the low type, by schema variable."""
    types = {schema_variable(name): type_ for name, type_ in type_of.items()}
    for name in variables:
        types[schema_variable(name)] = with_element(type_of[name], low)
    return types


def _denied(entry: Entry | None, color: Color) -> Mark | None:
    """Return the mark of an operator that the user denies by its name, or None."""
    if entry is None or not entry.asked or entry.list is not ListName.DENY:
        return None
    if entry.asked == "deny_ops":
        return Mark(color, Reason.DENY_OP)
    where = f" ({entry.where})" if entry.asked == OWN_LIST else ""
    return Mark(color, Reason.DENIED, None, f"{entry.why}{where}")


def _refusal(reason: PassReason, detail: str) -> Mark:
    return Mark(Color.NONE, reason, None, detail)
