"""Float32 inputs of a model whose weights are in 16 bits: one Cast each, and all else follows.

mobius-onnx declares pictures and sounds as float32, which its float16 weights then meet. What is
made of them is declared as float32 too, scalars beside them are stored so, and so are the outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.graph.added import AddedNames
from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.constants import stored_tensor
from amp_rewrite.graph.flat import ABSENT, MAIN
from amp_rewrite.graph.infer import FlatTypes, infer
from amp_rewrite.graph.proto.flat_proto import FlatProto
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.rewriting.clashes import LOW_TYPES, WIDE, Clash, clashes_of, reads
from amp_rewrite.rewriting.plan.casts import CastPlan, PlannedCast, Use

_WAVES = ("Sin", "Cos")

_PASSES = 16
"""How often scalars are looked for: where one is cast, the next ones meet 16 bits as well."""


def with_low_inputs(
    flat: FlatProto, types: FlatTypes, clashes: Sequence[Clash]
) -> tuple[FlatProto, int]:
    """Return a model whose float32 inputs are cast where low weights wait, and how many Casts.

    Args:
        flat: The model; it is given back if nothing is to be cast.
        types: Its types as they are inferred.
        clashes: The nodes in it that read two types.
    """
    plan = _casts_of_inputs(flat, types, clashes)
    casts = len(plan.casts)
    if not casts:
        return flat, 0
    flat = with_casts(flat, plan)
    for _ in range(_PASSES):
        plan = _casts_of_scalars(flat, infer(flat))
        if not plan.casts:
            break
        flat, casts = with_casts(flat, plan), casts + len(plan.casts)
    plan = _casts_of_outputs(flat, infer(flat))
    if plan.casts:
        flat, casts = with_casts(flat, plan), casts + len(plan.casts)
    return flat, casts


def with_casts(flat: FlatProto, plan: CastPlan) -> FlatProto:
    """Return the model after a plan."""
    from amp_rewrite.rewriting.apply.rewritten_model import rewritten_flat

    return rewritten_flat(flat, build_type_graph(flat), plan, (), {}).flat


def _casts_of_inputs(flat: FlatProto, types: FlatTypes, clashes: Sequence[Clash]) -> CastPlan:
    """Return the plan by which products whose weights are low read low graph inputs.

    The file declares what they give as float32, often, and so all that follows.
    """
    entering: dict[tuple[int, DType], list[Use]] = {}
    for clash in clashes:
        low = _chosen(flat, types, clash)
        for index, value in reads(flat, clash) if low is not None else ():
            if types[value] == WIDE and low is not None:
                entering.setdefault((value, low), []).append(Use(clash.node, index))
    return _plan(flat, entering)


def _casts_of_scalars(flat: FlatProto, types: FlatTypes) -> CastPlan:
    """Return the plan by which single float32 constants fit what is low since its inputs are."""
    found: dict[tuple[int, DType], list[Use]] = {}
    for clash in clashes_of(flat, types):
        low = LOW_TYPES.get(next((t for t in clash.types if t != WIDE), ""))
        wide = [(k, v) for k, v in reads(flat, clash) if types[v] == WIDE]
        if len(clash.types) == 2 and low is not None and all(_fits(flat, v, low) for _, v in wide):
            for _, value in wide:
                found[value, low] = [Use(flat.reader(s), flat.index(s)) for s in flat.uses(value)]
    return _plan(flat, found)


def _fits(flat: FlatProto, value: int, low: DType) -> bool:
    """Tell whether a value is a single constant that a low type holds as a normal number."""
    stored = stored_tensor(flat, value)
    if stored is None or stored.size != 1:
        return False
    number = abs(float(stored.numpy().item()))
    return number == 0 or low.smallest_normal <= number <= low.max


def _plan(flat: FlatProto, found: Mapping[tuple[int, DType], Sequence[Use]]) -> CastPlan:
    """Return the plan that casts values to types for some of their readers."""
    names = AddedNames((*flat.value_names, *flat.node_names))
    casts = tuple(
        PlannedCast(v, low, tuple(uses), names.cast(flat.value_names[v], low))
        for (v, low), uses in found.items()
    )
    return CastPlan(FLOAT32, casts, (), (), {}, (), (), {})


def _casts_of_outputs(flat: FlatProto, types: FlatTypes) -> CastPlan:
    """Return the plan by which outputs that are low since their inputs are become float32 again."""
    outputs: dict[int, list[Use]] = {}
    for index, value in enumerate(flat.main.outputs):
        if types[value] in LOW_TYPES and flat.recorded[value] == WIDE:
            outputs.setdefault(value, []).append(Use(ABSENT, index, MAIN))
    names = AddedNames((*flat.value_names, *flat.node_names))
    casts = tuple(
        PlannedCast(v, FLOAT32, tuple(uses), names.cast(flat.value_names[v], FLOAT32))
        for v, uses in outputs.items()
    )
    inner = {v: names.inner(flat.value_names[v], FLOAT32) for v in outputs}
    return CastPlan(FLOAT32, casts, (), (), {}, tuple(outputs), (), inner)


def _chosen(flat: FlatProto, types: FlatTypes, clash: Clash) -> DType | None:
    """Return the 16-bit type that a node was meant to compute in, if its inputs are all that lacks.

    Weights of a product have it, and what is float32 comes from graph inputs.
    """
    if WIDE not in clash.types or not has(flat.called(clash.node), Trait.CONTRACTS):
        return None
    low = {*clash.types} - {WIDE}
    (chosen,) = low if len(low) == 1 and low <= LOW_TYPES.keys() else (None,)
    if chosen is None:
        return None
    wide = [v for _, v in reads(flat, clash) if types[v] == WIDE]
    return LOW_TYPES[chosen] if all(_is_given(flat, v) for v in wide) else None


def _is_given(flat: FlatProto, value: int) -> bool:
    """Tell whether a value is a graph input, moved or not, or sines and cosines of anything.

    Models for diffusion make those of the time step, and their weights are low all the same.
    """
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
        if not called.domain and called.op_type == "Concat":
            more = inputs
        elif has(called, Trait.MOVES):
            more = inputs[:1]
        else:
            return False
        waiting += [v for v in more if v not in seen]
        seen.update(more)
    return True
