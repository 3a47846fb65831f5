"""What each reason says, for people."""

from __future__ import annotations

from amp_rewrite.paint.painting import Reason

PHRASES: dict[str, str] = {
    Reason.ALLOW_LIST: "it is on the allow list",
    Reason.FORCED: "the level UNSAFE_FORCE_ALL paints everything",
    Reason.BETWEEN: "it lies between allow operators, reached from",
    Reason.FOLLOWS: "an infer operator right behind",
    Reason.CLEAR: "a clear operator next to",
    Reason.SEQUENCE: "it handles the same sequence as",
    Reason.RETARGETED: "a Cast whose consumers are all low, retargeted for",
    Reason.FLOAT32_PART: "float32 by construction",
    Reason.COUNT: "counts keep float32 until they are normalised",
    Reason.DEMAND: "its absolute error matters",
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
    Reason.FUSED_FLOAT32: "the target computes a group as one operator, in float32",
    Reason.QUANTIZED: "it is quantised",
    Reason.CONSTANT_OVERFLOW: "a constant does not fit",
    Reason.CONSTANT_UNDERFLOW: "a constant rounds to zero",
    Reason.LONG_SUM: "its sums are too long for target {target}",
    Reason.CERTAIN_OVERFLOW: "a number does not fit",
    Reason.LIKELY_OVERFLOW: "numbers are likely not to fit, by an estimate",
    Reason.VARIABLE_READ: "it reads a training variable, and the cast comes after the read",
    Reason.UNPROFITABLE: "the casts around its region cost more than it saves",
    Reason.ISOLATED: "no accelerated operator is left in its region, first reached from",
    Reason.CAST_MOVED: "moving the cast across it saves casts or bytes",
    Reason.NOT_BETWEEN: "an infer operator that is neither between nor right behind allow ones",
    Reason.NOT_NEXT: "a clear operator that is not next to an allow one",
    Reason.CONVERTED: "every consumer is low, so it is stored in {precision}",
    Reason.STORED: "it computes as float32 and is stored in 16 bits, behind a Cast",
    Reason.CONSTANT: "a constant that something reads as float32",
    Reason.NO_ALLOW: "the model has no allow operator to be next to",
}
"""What each reason says, for people."""


def phrase(reason: str, precision: str, target: str) -> str:
    """Return what a reason says of a rewrite to `precision` for `target`."""
    return PHRASES.get(reason, reason).format(precision=precision, target=target)
