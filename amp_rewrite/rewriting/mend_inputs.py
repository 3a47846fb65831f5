"""Float32 inputs of a model whose weights are in 16 bits: one Cast each, and all else follows.

mobius-onnx declares pictures and sounds as float32, which its float16 weights then meet. What is
made of them is declared as float32 too, scalars beside them are stored so, and so are the outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from amp_rewrite.dtypes import FLOAT32, LOW, DType
from amp_rewrite.graph.added import AddedNames
from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.constants import stored_tensor
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT, MAIN, FlatGraph
from amp_rewrite.graph.infer import FlatTypes, infer
from amp_rewrite.graph.ports import ports_of
from amp_rewrite.graph.traits import Trait, has, row_of
from amp_rewrite.rewriting.apply.rewritten_graph import rewritten_flat
from amp_rewrite.rewriting.clashes import LOW_TYPES, WIDE, Clash, reads
from amp_rewrite.rewriting.plan.casts import CastPlan, PlannedCast, Use

_CHOOSING = ("Concat", "Where")  # operators: those of whose data all are in the result
_WAVES = ("Sin", "Cos")  # operators: what embeds a time step, and nothing else bounded


def with_low_inputs(
    flat: FlatGraph, types: FlatTypes, clashes: Sequence[Clash]
) -> tuple[FlatGraph, int]:
    """Return a model whose float32 inputs are cast where low weights wait, and how many Casts."""
    following = _Following.of(flat, types, clashes)
    if not following.casts:
        return flat, 0
    flat = with_casts(flat, _plan(flat, following.casts, following.outputs()))
    casts = len(following.casts) + len(following.outputs())
    types = infer(flat)
    late = [v for v in flat.main.outputs if types[v] in LOW_TYPES and flat.recorded[v] == WIDE]
    if late:  # what comes out of a branch, or of a loop
        flat = with_casts(flat, _plan(flat, {}, late))
    return flat, casts + len(late)


def with_casts(flat: FlatGraph, plan: CastPlan) -> FlatGraph:
    """Return the model after a plan; its vertices are those of `retyping_graph`."""
    graph = retyping_graph(flat) if plan.vertices else build_type_graph(flat)
    return rewritten_flat(flat, graph, plan, (), {}).flat


def retyping_graph(flat: FlatGraph) -> TypeGraph:
    """Return the dataflow whose vertices are the 16-bit variables of a model."""
    return build_type_graph(flat, bases=tuple(LOW.values()))


@dataclass(frozen=True)
class _Following:
    """Nodes that become 16-bit since 16-bit weights read float32 inputs of the model.

    Attributes:
        casts: Value, and to what it is cast -> for which readers.
        reads: Reader, as node and index -> to what it is cast.
        values: Value -> what it becomes.
    """

    flat: FlatGraph
    types: FlatTypes
    casts: dict[tuple[int, DType], list[Use]]
    reads: dict[tuple[int, int], DType]
    values: dict[int, DType]

    @classmethod
    def of(cls, flat: FlatGraph, types: FlatTypes, clashes: Sequence[Clash]) -> _Following:
        """Follow the inputs that products whose weights are low read, in execution order."""
        low_inputs = cls(flat, types, {}, {}, {})
        for clash in clashes:
            low = _chosen(flat, types, clash)
            for index, value in reads(flat, clash) if low is not None else ():
                if types[value] == WIDE and low is not None:
                    low_inputs._cast(value, low, clash.node, index)
        for node in range(flat.n_nodes) if low_inputs.casts else ():
            low_inputs._follow(node)
        return low_inputs

    def outputs(self) -> list[int]:
        """Return the outputs of the model that become low, and are declared as float32."""
        recorded = self.flat.recorded
        outputs = dict.fromkeys(self.flat.main.outputs)
        return [v for v in outputs if v in self.values and recorded[v] == WIDE]

    def _cast(self, value: int, low: DType, node: int, index: int) -> None:
        self.casts.setdefault((value, low), []).append(Use(node, index))
        self.reads[node, index] = low

    def _follow(self, node: int) -> None:
        """Let what a node gives be low if all that it reads is, single constants aside."""
        flat, inputs, outputs = self.flat, self.flat.inputs_of(node), self.flat.outputs_of(node)
        if not any((node, k) in self.reads or v in self.values for k, v in enumerate(inputs)):
            return
        called = flat.called(node)
        ports = ports_of(
            called.domain, called.op_type, flat.opset_of(node), len(inputs), len(outputs)
        )
        for variable in () if ports.schema is None else dict.fromkeys(ports.inputs):
            operands = [(k, v) for k, v in enumerate(inputs) if ports.inputs[k] == variable]
            low = self._shared(node, [(k, v) for k, v in operands if v != ABSENT])
            if low is None:
                continue
            results = zip(ports.outputs, outputs, strict=True)
            for value in (v for name, v in results if name == variable and v != ABSENT):
                if self.types[value] in (WIDE, None):  # None: what was read had two types
                    self.values[value] = low

    def _shared(self, node: int, operands: Sequence[tuple[int, int]]) -> DType | None:
        """Return the 16-bit type that all of a node's reads have, or get; None if they have not."""
        low_named = LOW_TYPES.get
        lows = {
            (k, v): self.reads.get((node, k))
            or self.values.get(v)
            or low_named(self.types[v] or "")
            for k, v in operands
        }
        wide = [(k, v) for (k, v), low in lows.items() if low is None]
        distinct = {*lows.values()} - {None}
        if len(distinct) != 1 or any(self.types[v] != WIDE for _, v in wide):
            return None
        (low,) = distinct
        if low is None or not all(_fits(self.flat, v, low) for _, v in wide):
            return None
        for index, value in wide:
            self._cast(value, low, node, index)
        return low


def _single(flat: FlatGraph, value: int) -> float | None:
    """Return the magnitude of a constant of one element; None for others."""
    stored = stored_tensor(flat, value)
    return None if stored is None or stored.size != 1 else abs(float(stored.numpy().item()))


def _fits(flat: FlatGraph, value: int, low: DType) -> bool:
    """Tell whether a value is a single constant that a low type holds as a normal number."""
    number = _single(flat, value)
    return number is not None and (number == 0 or low.smallest_normal <= number <= low.max)


def _plan(
    flat: FlatGraph, uses_of: Mapping[tuple[int, DType], Sequence[Use]], outputs: Sequence[int]
) -> CastPlan:
    """Return the plan that casts values for some of their readers, and outputs to float32."""
    names = AddedNames((*flat.value_names, *flat.node_names))
    casts = [
        PlannedCast(v, low, tuple(uses), names.cast(flat.value_names[v], low))
        for (v, low), uses in uses_of.items()
    ]
    for value in outputs:
        uses = tuple(Use(ABSENT, i, MAIN) for i, v in enumerate(flat.main.outputs) if v == value)
        name = names.cast(flat.value_names[value], FLOAT32)
        casts.append(PlannedCast(value, FLOAT32, uses, name))
    inner = {v: names.inner(flat.value_names[v], FLOAT32) for v in outputs}
    return CastPlan(FLOAT32, tuple(casts), retyped=tuple(outputs), inner=inner)


def _chosen(flat: FlatGraph, types: FlatTypes, clash: Clash) -> DType | None:
    """Return the 16-bit type that a node was meant to compute in, if only its inputs lack it."""
    low = {*clash.types} - {WIDE}
    contracts = has(flat.called(clash.node), Trait.CONTRACTS)
    if WIDE not in clash.types or not contracts or len(low) != 1 or not low <= LOW_TYPES.keys():
        return None
    wide = [v for _, v in reads(flat, clash) if types[v] == WIDE]
    return LOW_TYPES[low.pop()] if all(_is_given(flat, v) for v in wide) else None


def _is_given(flat: FlatGraph, value: int) -> bool:
    """Tell whether a value is a graph input, moved or not, or sines and cosines of anything."""
    waiting, seen = [value], {value}
    while waiting:
        value = waiting.pop()
        producer = flat.producer[value]
        if producer == ABSENT:
            is_main = flat.home[value] == MAIN and flat.is_input(value)
            if not is_main or flat.is_initializer(value):
                return False
            continue
        called, inputs = flat.called(producer), flat.inputs_of(producer)
        if not called.domain and called.op_type in _WAVES:
            continue
        if not has(called, Trait.MOVES):
            return False
        chooses = not called.domain and called.op_type in _CHOOSING
        data = row_of(called).data if chooses else (0,)
        moved = [v for k, v in enumerate(inputs) if data is None or k in data]
        more = [v for v in moved if not chooses or _single(flat, v) is None]
        waiting += [v for v in more if v not in seen]
        seen.update(more)
    return True
