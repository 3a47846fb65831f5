"""What a painting takes to run, by a target's table of costs: as costs of vertices and of arcs.

All costs are picoseconds, as integers, so that sums are exact and ties are ties. Float32 is the
zero: a vertex costs what it takes low more than in float32. A value whose maker and readers differ
costs one Cast, whoever many of them there are; two operators that the target computes together
cost what that saves if they differ.

Comments say of arrays what they are indexed by, and what an element is: ps are picoseconds, codes
stand for families, slots are the inputs of all nodes, one behind the other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.graph.constants import constant_tensor, stored_tensor
from amp_rewrite.graph.elements import FLOAT32_TYPES
from amp_rewrite.graph.elements import tensor as tensor_type
from amp_rewrite.graph.flat import ABSENT, MAIN, Array
from amp_rewrite.graph.traits import Trait, has, operator
from amp_rewrite.kernels.costs import ANY, NONE, NOTHING, Rate
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.weighing import Weighing
from amp_rewrite.values.patterns.find_groups import find_groups
from amp_rewrite.values.patterns.library import LAYOUTS, PATTERNS

# operators: those with constants that are folded into the weights of a product in front.
_FOLDED = ("Add", "BatchNormalization", "Mul", "Sub")

# operators: what changes no number and takes no time: casts are taken into what is around it.
_VIEWS = ("Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")

# operators: what reads of its first input as much as it writes
_PICKS = ("Gather", "GatherElements", "GatherND", "Slice")

UNIT = 1_000_000
"""How many of what costs are counted in make a microsecond."""


@dataclass(frozen=True)
class Flows:
    """The values that flow between vertices, one row for each that reads a value.

    The vertex behind the last one stands for whatever is float32, the next for whatever is low.

    Attributes:
        values: By row, the value; rows of one value stand together.
        makers: By row, the vertex that makes it.
        readers: By row, the vertex that reads it.
        families: By row, the code of the reader's family.
    """

    values: Array
    makers: Array
    readers: Array
    families: Array

    @cached_property
    def first(self) -> Array:
        """By value of those that occur, its first row."""
        return np.flatnonzero(np.diff(self.values, prepend=ABSENT))

    @cached_property
    def group(self) -> Array:
        """By row, which of the values that occur it is of."""
        return np.cumsum(np.diff(self.values, prepend=ABSENT) != 0) - 1


@dataclass(frozen=True)
class Joins:
    """Pairs of vertices that the target computes together if they have one type.

    Attributes:
        makers: By pair, the vertex in front.
        readers: By pair, the one behind.
        float32: By pair, what that saves in float32.
        low: By pair, what it saves in the low type.
        folded: By pair, whether the one behind goes into the weights of a product in front.
    """

    makers: Array
    readers: Array
    float32: Array
    low: Array
    folded: Array


class RunningTime:
    """What the vertices of a model and the values between them cost."""

    def __init__(self, context: PaintContext, weighing: Weighing) -> None:
        """Take what the painting knows; nothing is computed yet."""
        self._context, self._weighing, self._table = context, weighing, weighing.table
        self._graph, self._flat = context.type_graph, context.type_graph.flat
        self.float32, self.low = len(self._graph), len(self._graph) + 1

    @cached_property
    def _families(self) -> list[str]:
        """The families, by their code; the first is the model's ends, the next any operator."""
        return list(dict.fromkeys((NONE, ANY, *self._table.families.values())))

    @cached_property
    def _group_of(self) -> dict[int, str]:
        """Node that gives the result of a group of one type -> its pattern, of those with a cost.

        The other nodes of such a group lead to an empty text.
        """
        pattern_of: dict[int, str] = {}
        for fused in self._context.groups:
            name = fused.group.name
            if not (fused.tail or fused.is_called) and name in self._table.families:
                pattern_of |= dict.fromkeys(fused.group.nodes, "")
                pattern_of[fused.group.nodes[-1]] = name
        return pattern_of

    @cached_property
    def _family(self) -> Array:
        """By node, the code of its family."""
        codes = {family: code for code, family in enumerate(self._families)}
        table = [codes[self._table.family(operator(called))] for called in self._flat.operators]
        # (nodes,): codes
        by_node = np.array(table, np.int64)[np.array(self._flat.operator, np.int64)]
        for node, pattern in self._group_of.items():
            by_node[node] = codes[self._table.family(pattern)]
        free = {n for group in self.groups(self._table.one_type) for n in group}
        free = {node for node in free if has(self._flat.called(node), Trait.MOVES)}
        by_node[[*free]] = codes[ANY]
        for pattern in {p.name for p in LAYOUTS} & self._table.families.keys():
            results = {group[-1] for group in self.groups([pattern])} - free
            by_node[[*results]] = codes[self._table.family(pattern)]
        return by_node

    @cached_property
    def _in_front(self) -> Array:
        """By node, the code of its family; of a view, of that of what it shows."""
        family_of, flat = self._family.copy(), self._flat  # family_of: (nodes,), codes
        unnamed = self._families.index(ANY)
        for node in flat.nodes_of(*_VIEWS):
            maker = flat.producer[flat.inputs_of(node)[0]]
            if family_of[node] == unnamed:
                family_of[node] = 0 if maker == ABSENT else family_of[maker]
        return family_of

    def groups(self, names: Collection[str]) -> list[tuple[int, ...]]:
        """Return the nodes of the groups of these patterns."""
        patterns = [p for p in (*PATTERNS, *LAYOUTS) if p.name in names]
        return [group.nodes for group in find_groups(self._graph, patterns)]

    @cached_property
    def _is_float32(self) -> Array:
        """By value, whether it is a tensor that may be retyped."""
        # (values,)
        return np.array([type_ in FLOAT32_TYPES for type_ in self._graph.types], np.bool_)

    @cached_property
    def _is_constant(self) -> Array:
        """By value, whether it is a constant, which is converted in the file."""
        flat = self._flat
        is_constant = np.zeros(flat.n_values, np.bool_)  # (values,)
        held = (v for n in flat.nodes_of("Constant") for v in flat.outputs_of(n))
        stored = (v for body in flat.bodies for v in body.initializers)
        constant = [v for v in (*held, *stored) if constant_tensor(self._graph, v) is not None]
        is_constant[constant] = True
        return is_constant

    @cached_property
    def _fixed(self) -> tuple[Array, Array]:
        """A mask of the values computed of constants alone, and how many others each node reads."""
        flat, fixed = self._flat, np.append(self._is_constant, np.True_)  # ABSENT is the last
        for value in (v for body in flat.bodies for v in body.initializers):
            fixed[value] = stored_tensor(flat, value) is not None
        # (slots,): inputs of all nodes, one behind the other
        free = ~fixed[np.array(flat.inputs, np.int64)]
        varying = np.bincount(flat.slot_nodes[free], minlength=flat.n_nodes)  # (nodes,): how many
        waiting = np.flatnonzero(varying == 0).tolist()
        while waiting:
            node = waiting.pop()
            if has(flat.called(node), Trait.SUBGRAPHS, Trait.RANDOM):
                continue
            for value in (v for v in flat.outputs_of(node) if not fixed[v]):
                fixed[value] = True
                for reader in flat.readers(value):
                    varying[reader] -= 1
                    if not varying[reader]:
                        waiting.append(reader)
        return fixed, varying

    @cached_property
    def constants(self) -> Array:
        """By value, how many elements it holds if it is a constant, else 0."""
        return np.where(self._is_constant, self._weighing.elements, 0)

    @cached_property
    def _moved(self) -> Array:
        """By node, how many elements it reads and writes that are float32, or low already."""
        low = tensor_type(self._context.low.number)
        is_low = np.array([type_ == low for type_ in self._graph.types], np.bool_)  # (values,)
        # elements: (values,), 0 for other types
        flat, elements = self._flat, self._weighing.elements * (self._is_float32 | is_low)
        # (slots,): elements
        inputs = np.append(elements, 0)[np.array(flat.inputs, np.int64)]  # ABSENT is the last
        outputs = elements[np.array(flat.outputs, np.int64)]  # (outputs of all nodes,): elements
        moved = np.zeros(flat.n_nodes, np.int64)  # (nodes,): elements
        np.add.at(moved, flat.slot_nodes, inputs)
        # (outputs of all nodes,): nodes
        makers = np.repeat(np.arange(flat.n_nodes), np.diff(flat.output_start))
        np.add.at(moved, makers, outputs)
        for node in flat.nodes_of(*_PICKS):
            moved[node] = 2 * sum(int(elements[value]) for value in flat.outputs_of(node))
        for fused in self._context.groups:
            result = fused.group.nodes[-1]
            if self._group_of.get(result):
                ends = (*fused.inputs[:1], *flat.outputs_of(result))
                moved[result] = sum(int(elements[value]) for value in ends)
        return moved

    @cached_property
    def _counted(self) -> Array:
        """A mask of the vertices for which what their node takes counts: one for each node.

        It is the one that makes the first result, or the first one. Nothing counts of families that
        were not measured in both types.
        """
        # starts: (nodes + 1,), into outputs
        graph, starts = self._graph, np.array(self._flat.output_start, np.int64)
        # (outputs of all nodes + 1,): vertices, or ABSENT
        writes = np.append(np.array(graph.writes, np.int64), ABSENT)
        # (nodes,): vertices, or ABSENT
        makers = np.where(np.diff(starts) > 0, writes[starts[:-1]], ABSENT)
        makers = np.where(makers == ABSENT, graph.first[:-1], makers)
        return (makers[graph.node] == np.arange(len(graph))) & self._weighed[graph.node]

    @cached_property
    def _weighed(self) -> Array:
        """A mask of the nodes that were measured in both types, by themselves or by family."""
        low = self._context.low
        weighed = [self._table.is_weighed(name, low) for name in self._families]  # by code
        return np.array(weighed, np.bool_)[self._family] | self._is_measured

    @cached_property
    def _node_of(self) -> dict[str, int]:
        """First result -> node, of the nodes that were measured by themselves, in both types."""
        flat, measured = self._flat, self._table.nodes
        types = {FLOAT32.name, self._context.low.name}
        return {
            name: flat.producer[value]
            for value, name in enumerate(flat.value_names if measured else ())
            if flat.producer[value] != ABSENT
            and value == flat.outputs_of(flat.producer[value])[0]
            and types <= measured.get(name, {}).keys()
        }

    @cached_property
    def _is_measured(self) -> Array:
        """A mask of the nodes that were measured by themselves."""
        is_measured = np.zeros(self._flat.n_nodes, np.bool_)
        is_measured[[*self._node_of.values()]] = True  # is_measured: (nodes,)
        return is_measured

    def measured_together(self) -> Iterator[list[int]]:
        """Yield the nodes of each group that was measured as one."""
        for results in self._table.together:
            nodes = [self._node_of[name] for name in results if name in self._node_of]
            if len(nodes) > 1:
                yield nodes

    @cached_property
    def _macs(self) -> Array:
        """By node, its multiply-accumulates, of families for which they count."""
        table, sizes = self._table, self._weighing.sizes
        rated = {f for (f, _), rates in table.rates.items() if any(rate.mac for rate in rates)}
        counts = np.array([family in rated for family in self._families], np.bool_)  # (codes,)
        macs = np.zeros(self._flat.n_nodes, np.int64)
        # macs: (nodes,), multiply-accumulates
        for node in np.flatnonzero(counts[self._family]).tolist():
            counted = sizes.multiply_accumulates(node) or sizes.inner_products(node)
            macs[node] = counted or 0
        return macs

    def times(self, dtype: DType) -> Array:
        """Return, by vertex, what its node takes in a type, of those for which that counts."""
        vertices = np.flatnonzero(self._counted)  # (counted,): vertices
        times = np.zeros(len(self._graph), np.int64)  # (vertices,): ps
        times[vertices] = self._taken(self._graph.node[vertices], dtype)
        return times

    @cached_property
    def of_nodes(self) -> Array:
        """By node, what it takes in float32, whatever type it has; 0 for what was not measured."""
        nodes = np.flatnonzero(self._weighed)
        times = np.zeros(self._flat.n_nodes, np.int64)
        times[nodes] = self._taken(nodes, FLOAT32)  # times: (nodes,), ps
        return times

    def _taken(self, nodes: Array, dtype: DType) -> Array:
        """Return what weighed nodes take in a type."""
        kinds, kind = self._kinds
        taken = [
            round(self._table.node(self._families[code], dtype, moved, macs) * UNIT)
            for code, moved, macs in kinds
        ]
        times = np.array(taken, np.int64)[kind[nodes]]  # (len(nodes),): ps
        if self._node_of:
            alone = self._measured(dtype)[nodes]  # (len(nodes),): ps
            times = np.where(self._is_measured[nodes], alone, times)
        return times

    def _measured(self, dtype: DType) -> Array:
        """Return, by node, what it took by itself in a type; 0 for others."""
        times = np.zeros(self._flat.n_nodes, np.int64)
        for name, node in self._node_of.items():
            times[node] = round(self._table.nodes[name][dtype.name] * UNIT)  # times: (nodes,), ps
        return times

    @cached_property
    def _kinds(self) -> tuple[list[tuple[int, int, int]], Array]:
        """Family, elements and multiply-accumulates of weighed nodes that differ, and each's."""
        nodes = np.flatnonzero(self._weighed)
        columns = (column[nodes].tolist() for column in (self._family, self._moved, self._macs))
        numbers = dict[tuple[int, int, int], int]()
        kind = np.zeros(self._flat.n_nodes, np.int64)  # (nodes,): which of `numbers`
        kind[nodes] = [numbers.setdefault(row, len(numbers)) for row in zip(*columns, strict=True)]
        return [*numbers], kind

    @cached_property
    def idle(self) -> list[tuple[int, int]]:
        """The nodes that hand on what they read, and are dropped by runtimes, as pairs of vertices.

        The first is of the node that makes the value, the other of the one that hands it on:
        Identity, and a Cast from float32 to float32.
        """
        flat, graph, idle = self._flat, self._graph, list[tuple[int, int]]()
        for node in flat.nodes_of("Identity", "Cast"):
            value, result = flat.inputs_of(node)[0], flat.outputs_of(node)[0]
            is_made = value != ABSENT and flat.producer[value] != ABSENT
            if not (is_made and self._is_float32[value] and self._is_float32[result]):
                continue
            ends = int(graph.source[value]), int(graph.source[result])
            if ABSENT not in ends and not set(ends) & self._context.excluded.keys():
                idle.append(ends)
        return idle

    @cached_property
    def _handed_on(self) -> Array:
        """By value, and one more for ABSENT, the value that idle nodes hand on as it."""
        same, flat = np.arange(self._flat.n_values + 1), self._flat  # same: (values + 1,), values
        same[-1] = ABSENT
        for _, vertex in self.idle:  # in the order of execution
            node = self._graph.nodes[vertex]
            same[flat.outputs_of(node)[0]] = same[flat.inputs_of(node)[0]]
        return same

    @cached_property
    def flows(self) -> Flows:
        """The float32 values and what reads them, constants included.

        A Cast of the model to the low type reads as what reads its result; one to another type
        takes whatever it is given, and is left out.
        """
        flat, graph = self._flat, self._graph
        slots = self._handed_on[np.array(flat.inputs, np.int64)]  # (slots,): values, or ABSENT
        reads = np.array(graph.reads, np.int64)  # (slots,): vertices, or ABSENT
        casts = np.array([o[:2] == ("", "Cast") for o in flat.operators], np.bool_)  # (operators,)
        of_cast = casts[np.array(flat.operator, np.int64)][flat.slot_nodes]  # (slots,)
        idle = np.zeros(flat.n_nodes, np.bool_)  # (nodes,)
        idle[[graph.nodes[vertex] for _, vertex in self.idle]] = True
        # (slots,): a mask of the rows
        there = (slots != ABSENT) & ~of_cast & ~idle[flat.slot_nodes]
        there &= np.append(self._is_float32, np.False_)[slots]
        readers = np.where(reads == ABSENT, self.float32, reads)[there]  # (rows,): vertices
        rows = [(slots[there], readers, self._family[flat.slot_nodes[there]])]
        for number, body in enumerate(flat.bodies):
            outputs = np.array(body.outputs, np.int64)  # (outputs of the body,): values
            if number == MAIN:
                low = np.isin(outputs, list(self._context.low_ends))  # as outputs
                sinks = np.where(low, self.low, self.float32)
            else:
                # as outputs: vertices
                sinks_given = np.array(graph.sinks.get(number, [ABSENT] * len(outputs)), np.int64)
                sinks = np.where(sinks_given == ABSENT, self.float32, sinks_given)
            of_tensor = self._is_float32[outputs]  # as outputs: a mask
            ends = self._handed_on[outputs[of_tensor]]
            rows.append((ends, sinks[of_tensor], np.zeros(of_tensor.sum(), np.int64)))
        lowered = np.array([*self._lowered()], np.int64).reshape(-1, 2)  # (found, 2): value, code
        rows.append((lowered[:, 0], np.full(len(lowered), self.low), lowered[:, 1]))
        values, readers, families = (np.concatenate(column) for column in zip(*rows, strict=True))
        # (rows,): rows by value, then reader, then code
        order = np.lexsort((families, readers, values))
        columns = np.stack((values, readers, families), axis=1)[order]  # (rows, 3)
        columns = columns[(np.diff(columns, axis=0, prepend=ABSENT) != 0).any(axis=1)]
        values, readers, families = columns.T
        return Flows(values, self._makers[values], readers, families)

    def _lowered(self) -> Iterator[tuple[int, int]]:
        """Yield what Casts of the model make low, float32 values, each with a reader's family."""
        flat, low = self._flat, tensor_type(self._context.low.number)
        for node in flat.nodes_of("Cast"):
            value, output = flat.inputs_of(node)[0], flat.outputs_of(node)[0]
            if self._is_float32[value] and self._graph.types[output] == low:
                yield from ((value, family) for family in self._reading(output))

    def raised(self) -> Iterator[tuple[int, int]]:
        """Yield the vertices that make float32 of low values, Casts of the model, with their times.

        That is what becoming low saves: there is no Cast then.
        """
        flat, low = self._flat, tensor_type(self._context.low.number)
        for node in flat.nodes_of("Cast"):
            value, output = flat.inputs_of(node)[0], flat.outputs_of(node)[0]
            if not self._is_float32[output] or self._graph.types[value] != low:
                continue
            maker = flat.producer[value]
            family = 0 if maker == ABSENT else int(self._in_front[maker])
            elements = int(self._weighing.elements[value])
            rates = [self._cast_rates(FLOAT32)[family][reader] for reader in self._reading(output)]
            yield self._graph.source[output], max(round(r.takes(elements) * UNIT) for r in rates)

    def _reading(self, value: int) -> set[int]:
        """Return the codes of the families of what reads a value."""
        return {int(self._family[node]) for node in self._flat.readers(value)} or {0}

    @cached_property
    def _makers(self) -> Array:
        """By value, the vertex that makes it."""
        sources = np.array(self._graph.source, np.int64)  # (values,): vertices, or ABSENT
        makers = np.where(sources == ABSENT, self.float32, sources)  # (values,): vertices
        main = self._flat.main.inputs
        makers[[v for v in self._context.low_ends if v in main]] = self.low
        return makers

    @cached_property
    def _families_of_vertices(self) -> Array:
        """By vertex, the code of its node's family; the two behind the last are of none."""
        return np.append(self._in_front[self._graph.node], (0, 0))  # (vertices + 2,): codes

    def _cast_rates(self, to: DType) -> list[list[Rate]]:
        """Return what a Cast to a type takes, by the families of its maker and of its reader."""
        names = self._families
        return [[self._table.cast(to, maker, reader) for reader in names] for maker in names]

    def casts(self, to: DType) -> Array:
        """Return, by value of `flows`, what a Cast of it to a type takes; constants cost nothing.

        If several read it, it takes what the dearest of them says.
        """
        flows, rates = self.flows, self._cast_rates(to)
        # (codes, codes), of maker and reader: microseconds a call
        calls = np.array([[rate.call for rate in row] for row in rates])
        # (codes, codes): microseconds an element
        each = np.array([[rate.element for rate in row] for row in rates])
        pair = self._families_of_vertices[flows.makers], flows.families
        # (rows of flows,): microseconds
        taken = calls[pair] + each[pair] * self._weighing.elements[flows.values]
        taken = np.rint(taken * UNIT).astype(np.int64)  # (rows of flows,): ps
        taken[self._is_constant[flows.values]] = 0
        return np.maximum.reduceat(taken, flows.first) if len(taken) else taken

    @cached_property
    def joins(self) -> Joins:
        """The pairs that the target computes together: nothing else reads what is between them.

        A node is computed together with one of those in front at most, the first that fits. The two
        take no less than the dearer of them alone, whatever fitted rates say.
        """
        flows, width = self.flows, len(self._families)
        rows = self._single_rows()
        _, once = np.unique(flows.readers[rows], return_index=True)  # (pairs,): into rows
        rows = rows[once]
        makers, readers, values = flows.makers[rows], flows.readers[rows], flows.values[rows]
        # (pairs,): code of the maker * width + code of the reader
        pairs = self._families_of_vertices[makers] * width + flows.families[rows]
        # (pairs,) each: ps in float32, in low
        saved = [np.zeros(len(rows), np.int64) for _ in range(2)]
        for pair in np.unique(pairs).tolist():
            key = tuple(self._families[code] for code in divmod(pair, width))
            of_pair = pairs == pair  # (pairs,): a mask
            for bound, dtype in zip(saved, (FLOAT32, self._context.low), strict=True):
                rate = self._table.joins.get((*key, dtype.name), NOTHING)
                taken = rate.call + rate.element * self._weighing.elements[values[of_pair]]
                bound[of_pair] = np.rint(taken * UNIT).astype(np.int64)
        folded = self._folded(makers, readers)
        for bound, dtype in zip(saved, (FLOAT32, self._context.low), strict=True):
            alone = self.times(dtype)  # (vertices,): ps
            np.minimum(bound, np.minimum(alone[makers], alone[readers]), out=bound)
            bound[folded] = alone[readers[folded]]
            # what was measured together took what it did together
            bound[self._is_measured[self._graph.node[readers]]] = 0
        return Joins(makers, readers, saved[0], saved[1], folded)

    def _folded(self, makers: Array, readers: Array) -> Array:
        """Return a mask of the pairs whose reader goes into the weights of a product in front.

        What is kept in float32 because the target cuts its constants off is left out.
        """
        flat, (fixed, varying) = self._flat, self._fixed
        called = np.array(flat.operator, np.int64)  # (nodes,): operators
        front, behind = self._graph.node[makers], self._graph.node[readers]  # (pairs,): nodes
        linear, cut, contracts = (  # (operators,): masks
            np.array([of(o) for o in flat.operators], np.bool_)
            for of in (
                lambda o: o.op_type in _FOLDED,
                lambda o: o.op_type in self._context.cut,
                lambda o: has(o, Trait.CONTRACTS),
            )
        )
        # (slots,)
        of_constant = np.append(self._is_constant, np.False_)[np.array(flat.inputs, np.int64)]
        # (nodes,): how many
        constants = np.bincount(flat.slot_nodes[of_constant], minlength=flat.n_nodes)
        may = linear[called[behind]] & (varying[behind] == 1)  # (pairs,)
        may &= ~(cut[called[behind]] & (constants[behind] > 0))
        starts = np.array(flat.input_start, np.int64)  # (nodes + 1,): slots
        # (some,): pairs
        products = np.flatnonzero(contracts[called[front]] & (np.diff(starts)[front] > 1))
        weights = starts[front[products]] + 1  # (some,): slots of second inputs
        is_folded = np.zeros(len(readers), np.bool_)  # (pairs,)
        is_folded[products] = may[products] & fixed[np.array(flat.inputs, np.int64)[weights]]
        folded = {*readers[is_folded].tolist()}
        for pair in (may & ~is_folded).nonzero()[0][np.argsort(readers[may & ~is_folded])].tolist():
            if makers[pair] in folded:
                is_folded[pair] = True
                folded.add(int(readers[pair]))
        return is_folded

    def reads_one_value(self, vertex: int) -> bool:
        """Tell whether all but one of the values that a node reads are the same in every run."""
        return bool(self._fixed[1][self._graph.nodes[vertex]] == 1)

    def _single_rows(self) -> Array:
        """Return the rows of values that one vertex alone reads, of families that are joined."""
        flows, width = self.flows, len(self._families)
        # (rows of flows,): code of the maker * width + of the reader
        pairs = self._families_of_vertices[flows.makers] * width + flows.families
        codes = {name: code for code, name in enumerate(self._families)}
        joined = {(maker, reader) for maker, reader, _ in self._table.joins}
        wanted = [codes[m] * width + codes[r] for m, r in joined if m in codes and r in codes]
        # (rows of flows,)
        fit = np.isin(pairs, wanted) & (np.maximum(flows.makers, flows.readers) < self.float32)
        views = np.zeros(self._flat.n_nodes + 1, np.bool_)  # (nodes + 1,)
        views[[*self._flat.nodes_of(*_VIEWS)]] = True
        # (vertices + 2,)
        of_vertex = views[np.append(self._graph.node, (ABSENT, ABSENT))]  # ABSENT is the last
        fit &= ~(of_vertex[flows.makers] | of_vertex[flows.readers])
        return np.flatnonzero(fit & (np.bincount(flows.group)[flows.group] == 1))
