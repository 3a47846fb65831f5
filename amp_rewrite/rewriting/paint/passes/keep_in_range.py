"""Values outside the range of the 16-bit type, for certain or by an estimate, stay float32.

So do whoever computes and whoever reads such a value; a product whose partial sums leave the range,
or a normalization whose variance does, where kernels keep these in the low type. A comparison, a
bound of Clip, a mask of an attention and an activation that is one operator do not mind.

Evidence: light_bvlc_alexnet in float16: all 1,000 outputs are infinite or NaN without the pass,
none with it. LayerNormalization of numbers with a variance of 246,000 for directml: low without it
(https://github.com/microsoft/onnxruntime/issues/17692), float32 with it.
"""

from __future__ import annotations

from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.traits import Trait, row_of
from amp_rewrite.rewriting.paint.keep import Ask, Keep, Kept, Match, Reason, Stage, keep


@keep("keep-in-range", Reason.LIKELY_OVERFLOW, Stage.KEEPING, 40, overrules=True)
def keep_in_range(m: Match, ask: Ask) -> Kept:
    """Unpaint what computes or reads a value beyond the range of the low type."""
    context, facts = ask.context, m.facts
    hidden = {value for fused in context.groups if not fused.tail for value in fused.inner}
    ends = [(b, _ends(m, ask, v)) for v, b in facts.beyond.items() if v not in hidden]
    inside = facts.beyond_inside(context.adds_low, context.squares_low)
    ends += [(beyond, [*m.graph.vertices_of(node)]) for node, beyond in inside.items()]
    for (reason, detail), vertices in ends:
        if reason is Reason.LIKELY_OVERFLOW and not context.estimates_count:
            continue  # data know better than an estimate
        low = filter(ask.painting.is_allow, vertices)
        kept = [v for v in low if reason is Reason.CERTAIN_OVERFLOW or not context.is_allowed(v)]
        yield Keep(detail, (), kept, reason=reason)


def _ends(m: Match, ask: Ask, value: int) -> list[int]:
    """Return the vertices that compute or read a value and mind if it is infinite."""
    flat, ends = m.flat, [m.graph.source[value]]
    for slot in flat.uses(value):
        node, index = flat.reader(slot), flat.index(slot)
        is_bound = m.is_a(node, "Clip") and index > 0
        is_mask = index in row_of(flat.called(node)).masks and m.facts.masks.limit(
            value, ask.painting.low_readers(m.graph, value)
        )
        if not (is_bound or is_mask or m.has(node, Trait.COMPARES)):
            ends.append(m.graph.reads[slot])
    return [vertex for vertex in ends if vertex != ABSENT]
