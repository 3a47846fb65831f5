"""What each reason says: to who knows the lists and passes, and to who does not."""

from __future__ import annotations

from amp_rewrite.dtypes import LOW
from amp_rewrite.rewriting.paint.painting import Reason
from amp_rewrite.rewriting.paint.pass_table import PASSES

PHRASES: dict[str, str] = {
    Reason.ALLOW_LIST: "it is on the allow list",
    Reason.FORCED: "the level UNSAFE_FORCE_ALL, or --only, converts everything",
    Reason.FLOAT32_PART: "float32 by construction",
    Reason.COUNT: "counts keep float32 until they are normalised",
    Reason.DEMAND: "small errors of it matter",
    Reason.DENY_LIST: "it is on the deny list",
    Reason.DOWNSTREAM_OF_DENY: "denied, reached forward from",
    Reason.SQUARE: "denied",
    Reason.SEQUENCE_DENIED: "its sequence stays float32",
    Reason.PRESERVED: "the user preserves it",
    Reason.NODE_RULE: "a node rule keeps it",
    Reason.UNLISTED: "it is on no list, by decision",
    Reason.UNKNOWN_OPERATOR: "it is a boundary",
    Reason.FIXED_TYPE: "the operator's schema fixes this type",
    Reason.TYPE_UNSUPPORTED: "the operator's schema does not admit {precision} here",
    Reason.OPSET_TOO_OLD: "Cast gives no {precision} at the model's opset; --opset raises it",
    Reason.NO_KERNEL: "target {target} has no {precision} kernel for it",
    Reason.FUSED: "the target computes its group as one operator",
    Reason.QUANTIZED: "it is quantised",
    Reason.CONSTANT_OVERFLOW: "a constant does not fit",
    Reason.CONSTANT_UNDERFLOW: "a constant rounds to zero",
    Reason.CERTAIN_OVERFLOW: "a number does not fit",
    Reason.LIKELY_OVERFLOW: "numbers are likely not to fit, by an estimate",
    Reason.VARIABLE_READ: "it reads a training variable, and the cast comes after the read",
    Reason.NOT_BETWEEN: "an infer operator that is neither between nor right behind allow ones",
    Reason.NOT_NEXT: "a clear operator that is not next to an allow one",
    Reason.CONVERTED: "every consumer is low, so it is stored in {precision}",
    Reason.STORED: "it computes as float32 and is stored in 16 bits, behind a Cast",
    Reason.GIVEN: "the model computes it in {precision}",
    Reason.CONSTANT: "a constant that something reads as float32",
    Reason.NO_ALLOW: "the model has no allow operator to be next to",
    **{reason: reason.phrase for step in PASSES for reason in step.reasons},
}
"""What each reason says, for people."""


PLAIN: dict[str, str] = {
    Reason.ALLOW_LIST: "is fast in {precision}",
    Reason.FORCED: "is forced by the level or by --only",
    Reason.FUSED: "is part of a group that the target computes as one operator",
    Reason.FLOAT32_PART: "is part of training that needs float32",
    Reason.COUNT: "holds counts or positions; {precision} is exact only up to {exact}",
    Reason.DEMAND: "feeds angles, indices or logarithms, where small errors matter",
    Reason.DENY_LIST: "loses too much accuracy in {precision}",
    Reason.DOWNSTREAM_OF_DENY: "uses a result that needs float32",
    Reason.SQUARE: "squares values for a sum, which can overflow {precision}",
    Reason.SEQUENCE_DENIED: "handles a sequence that stays float32",
    Reason.PRESERVED: "is kept by --preserve",
    Reason.NODE_RULE: "is kept by a node rule",
    Reason.UNLISTED: "is left alone (op list)",
    Reason.UNKNOWN_OPERATOR: "is an operator on no op list",
    Reason.FIXED_TYPE: "takes only float32 here",
    Reason.TYPE_UNSUPPORTED: "does not take {precision} at this opset",
    Reason.OPSET_TOO_OLD: "has an opset without {precision}; --opset raises it",
    Reason.NO_KERNEL: "has no {precision} kernel on target {target}",
    Reason.QUANTIZED: "is quantised already",
    Reason.CONSTANT_OVERFLOW: "uses a constant that is too large for {precision}",
    Reason.CONSTANT_UNDERFLOW: "needs a constant that is too small for {precision}",
    Reason.CERTAIN_OVERFLOW: "overflows {precision} for every input",
    Reason.LIKELY_OVERFLOW: "probably overflows {precision}",
    Reason.VARIABLE_READ: "reads a variable that training keeps in float32",
    Reason.NOT_BETWEEN: "is safe, but not worth a cast",
    Reason.NOT_NEXT: "moves data between float32 operators",
    Reason.NO_ALLOW: "is in a model where nothing gains from {precision}",
    Reason.CONVERTED: "is a constant stored in {precision}",
    Reason.STORED: "is a constant stored in 16 bits and read as float32",
    Reason.GIVEN: "was {precision} already",
    Reason.CONSTANT: "is a constant that is read as float32",
    **{reason: reason.plain for step in PASSES for reason in step.reasons},
}
"""The same for readers who do not know lists and passes; each follows the name of a node."""


def phrase(reason: str, precision: str, target: str) -> str:
    """Return what a reason says of a rewrite to `precision` for `target`."""
    return PHRASES.get(reason, reason).format(precision=precision, target=target)


def plain_phrase(reason: str, precision: str, target: str) -> str:
    """Return what a reason says of a node, in words that need no knowledge of how it works."""
    template = PLAIN.get(reason)
    if template is None:
        return phrase(reason, precision, target)
    exact = f"{2 / LOW[precision].epsilon:,.0f}" if precision in LOW else "few integers"
    return template.format(precision=precision, target=target, exact=exact)
