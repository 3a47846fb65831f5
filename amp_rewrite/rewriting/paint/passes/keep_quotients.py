"""Products of activations whose size only their quotient bounds stay float32.

Linear attention is relu(q) (relu(k)^T v) over relu(q) (relu(k)^T 1): three activations are
multiplied, over as many tokens as there are, and then divided by the same product without v. The
scale of q and k drops out of the quotient, hence no training keeps it small: EfficientViT's
products leave float16 on ordinary images, and its authors compute them in float32 on purpose
(Cai et al., "EfficientViT", 2023, https://arxiv.org/abs/2205.14756, in whose code they are cast).
An estimate, which starts from weights, cannot see that. One product over its
own norm is another matter. In bfloat16 nothing leaves the range.

Evidence: linear attention whose activations are large, float16: NaN without the pass, right with it
(tests/conformance/test_linear_attention.py).
"""

from __future__ import annotations

from amp_rewrite.graph.traits import Trait, having
from amp_rewrite.rewriting.paint.keep import Ask, Keep, Kept, Match, Need, keep
from amp_rewrite.rewriting.paint.match import ADDED, SIGNED
from amp_rewrite.rewriting.paint.paint_pass import Stage
from amp_rewrite.rewriting.paint.painting import Reason

# operators: those that leave the scale of what they read what it is.
_SCALED = (SIGNED | ADDED | having(Trait.SUMS_UP) | {"Clip", "Max", "Mul", "Relu"}) - {"Sub"}


@keep(
    "keep-quotients",
    Reason.LIKELY_OVERFLOW,
    Stage.KEEPING,
    60,
    "products of activations that only their quotient bounds, as in linear attention",
    needs=Need.RANGE,
    danger=True,
)
def keep_quotients(m: Match, _: Ask) -> Kept:
    """Unpaint a quotient of products of the same activations, and these products."""

    def multiplies(node: int) -> bool:
        """Tell whether a node is a product of activations: no operand of it is a weight."""
        return m.has(node, Trait.CONTRACTS) and not any(map(m.is_constant, m.data(node)))

    for quotient in reversed(m.nodes("Div")):  # the last one is told
        first, second = m.read(quotient)
        if m.is_constant(second):
            continue
        above, below = (
            m.behind(v, enters=lambda n: multiplies(n) or m.op(n) in _SCALED)
            for v in (first, second)
        )
        products = [n for n in above.nodes if multiplies(n)]
        if len(products) > 1 and not above.ends.isdisjoint(below.ends):
            outside = m.behind(first, second, enters=lambda n: m.op(n) in _SCALED)
            named = ", ".join(m.name(n) for n in sorted(products)[:3])
            yield Keep(
                f"nothing bounds products of activations ({named}) but their quotient "
                f"{m.name(quotient)}, {m.low.name} ends at {m.low.max:.6g}",
                {quotient, *outside.nodes, *filter(multiplies, [*above.nodes, *below.nodes])},
            )
