"""Operators that a runtime computes on integers stay as they are.

A product with weights of a few bits may become float16 with their scales
(retarget_dequantizers.py).

Evidence: DequantizeLinear, Conv, QuantizeLinear: without the pass a Cast keeps ONNX Runtime from
fusing the three into QLinearConv (docs/painting.md, Quantised groups).
"""

from __future__ import annotations

from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.rewriting.paint.keep import Ask, Keep, Kept, Match, Reason, Stage, keep
from amp_rewrite.rewriting.paint.passes.retarget_dequantizers import may_be_low
from amp_rewrite.values.patterns.quantized import quantized_groups


@keep("keep-quantized", Reason.QUANTIZED, Stage.GIVEN, 60, overrules=True)
def keep_quantized(m: Match, ask: Ask) -> Kept:
    """Mark what stands between quantised tensors; what lies outside is converted."""
    for group in quantized_groups(m.graph):
        first, last = m.name(group.first), group.last
        if not (group.keeps_operand and m.low is FLOAT16 and may_be_low(ask.context, group.first)):
            where = f"after {first}" if last == ABSENT else f"between {first} and {m.name(last)}"
            yield Keep(where, group.nodes)
