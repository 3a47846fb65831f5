"""A product with weights of a few bits is low together with them, or not at all.

Evidence: a MatMul with int4 weights that something else reads as float32
(tests/conformance/test_weight_only_quantization.py): without the pass ONNX Runtime does not fuse
the two.
"""

from __future__ import annotations

from amp_rewrite.rewriting.paint.keep import Ask, Keep, Kept, Match, Reason, Stage, keep
from amp_rewrite.values.patterns.quantized import quantized_groups


@keep("keep-dequantized", Reason.QUANTIZED, Stage.KEEPING, 140, overrules=True)
def keep_dequantized(m: Match, ask: Ask) -> Kept:
    """Unpaint products that a runtime fuses with weights of a few bits, where these are float32."""
    is_allow, vertices_of = ask.painting.is_allow, m.graph.vertices_of
    for group in quantized_groups(m.graph):
        if not any(map(is_allow, vertices_of(group.first))):
            vertices = (v for n in group.nodes for v in vertices_of(n) if is_allow(v))
            yield Keep(
                f"after {m.name(group.first)}, which something reads as float32", (), vertices
            )
