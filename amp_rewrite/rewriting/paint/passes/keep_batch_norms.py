"""A BatchNormalization that ONNX Runtime would fuse into a product of another type stays float32.

ONNX Runtime 1.32.0 multiplies the weights of a MatMul by the scale of a BatchNormalization after
it, without a look at their types, and then refuses the file ("Tensor type mismatch").

Evidence: MatMul and BatchNormalization in float16 for tensorrt: without the pass ONNX Runtime
1.32.0 does not load the file.
"""

from __future__ import annotations

from collections.abc import Sequence

from amp_rewrite.graph.elements import tensor
from amp_rewrite.graph.flat import ABSENT, FlatGraph
from amp_rewrite.rewriting.paint.given_notes import GivenNote, given_notes
from amp_rewrite.rewriting.paint.keep import Ask, Keep, Kept, Match, Reason, Stage, keep

# operators: what the runtime looks through between the two; Casts are gone where types agree.
_LOOKED_THROUGH = frozenset({"Reshape", "Transpose", "Identity"})


@keep("keep-batch-norms", Reason.RUNTIME_FUSION, Stage.KEEPING, 130, danger=True, overrules=True)
def keep_batch_norms(m: Match, ask: Ask) -> Kept:
    """Unpaint such nodes where their scale and statistics are not low with them."""
    context, flat = ask.context, m.flat
    if context.target is None or not context.target.meets_onnx_runtime:
        return
    notes = {} if context.given is None else given_notes(flat)
    for node in m.nodes("BatchNormalization"):
        reads = m.graph.reads[flat.input_start[node] : flat.input_start[node + 1]]
        mixed = [v != ABSENT and ask.painting.is_allow(v) for v in reads]
        if not mixed[0] or (all(mixed) and not _was_mixed(m, reads, notes.get(node))):
            continue
        product = product_before(flat, node, through_casts=True)
        if product != ABSENT and _is_low(m, ask, product):
            origin = m.graph.source[m.made(product)]
            because = None if origin == ABSENT else origin
            yield Keep(m.name(product), (), [reads[0]], because)


def _was_mixed(m: Match, reads: Sequence[int], note: GivenNote | None) -> bool:
    """Tell whether a node had two types in the model that its float32 form stands for."""
    if note is None:
        return False
    return any(not note.variables.issuperset(m.graph.kind_of(v).variables) for v in reads)


def _is_low(m: Match, ask: Ask, product: int) -> bool:
    """Tell whether a MatMul gives the low type, or came so."""
    value = m.made(product)
    vertex = m.graph.source[value]
    if vertex != ABSENT:
        return ask.painting.is_allow(vertex)
    return m.graph.types[value] == tensor(m.low.number)


def product_before(flat: FlatGraph, node: int, *, through_casts: bool = False) -> int:
    """Return the MatMul that makes what a BatchNormalization reads, moved or not, else ABSENT."""
    passed = _LOOKED_THROUGH | {"Cast"} if through_casts else _LOOKED_THROUGH
    maker = _maker(flat, node)
    while maker != ABSENT:
        called = flat.called(maker)
        if called[:2] == ("", "MatMul"):
            return maker
        if called.domain or called.op_type not in passed:
            break
        maker = _maker(flat, maker)
    return ABSENT


def _maker(flat: FlatGraph, node: int) -> int:
    """Return the node that makes the first input of one; ABSENT if none does."""
    read = flat.inputs_of(node)
    return flat.producer[read[0]] if read and read[0] != ABSENT else ABSENT
