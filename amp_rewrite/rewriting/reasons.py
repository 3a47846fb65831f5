"""Why a type variable has its type: a word for programs, and the same in words for people.

What is said of a reason stands on it and nowhere else: reports, the page, `explain`, `check` and
docs/painting.md take it from there.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from amp_rewrite.dtypes import LOW


class PassReason(str):
    """A reason that one pass alone gives, or a rule of the user, with what is said of it.

    Attributes:
        phrase: The text for readers who know lists and passes; `{precision}` and `{target}` stand
            for those of the rewrite.
        plain: The same for other readers; it follows the name of a node.
        danger: Whether it is about right and wrong, not about speed, kernels or rules.
        low: Whether it makes a vertex low.
    """

    __slots__ = ("danger", "low", "phrase", "plain")

    def __new__(
        cls,
        word: str,
        phrase: str = "",
        plain: str = "",
        *,
        danger: bool = False,
        low: bool = False,
    ) -> Self:
        """Make a reason of its word in reports."""
        reason = super().__new__(cls, word)
        reason.phrase, reason.plain, reason.danger, reason.low = phrase, plain, danger, low
        return reason


class Reason(StrEnum):
    """The other reasons, of which the same is said: first those that make a vertex low."""

    phrase: str
    plain: str
    danger: bool
    low: bool

    def __new__(cls, declared: PassReason) -> Self:
        """Make a reason of what is declared of it."""
        reason = str.__new__(cls, declared)
        reason.phrase, reason.plain = declared.phrase, declared.plain
        reason.danger, reason.low = declared.danger, declared.low
        return reason

    def __repr__(self) -> str:
        """Return the word, as records show it."""
        return repr(self.value)

    ALLOW_LIST = PassReason(
        "allow-list", "it is on the allow list", "is fast in {precision}", low=True
    )
    FORCED = PassReason(
        "forced",
        "the level UNSAFE_FORCE_ALL, or --only, converts everything",
        "is forced by the level or by --only",
        low=True,
    )
    FUSED = PassReason(
        "fused-group",
        "the target computes its group as one operator",
        "is part of a group that the target computes as one operator",
        low=True,
    )
    CONVERTED = PassReason(
        "converted-constant",
        "every consumer is in {precision}, and so it is stored in that",
        "is a constant stored in {precision}",
        low=True,
    )
    GIVEN = PassReason(
        "given", "the model computes it in {precision}", "was {precision} already", low=True
    )
    STORED = PassReason(
        "stored-constant",
        "it computes as float32 and is stored in 16 bits, with a Cast after it",
        "is a constant stored in 16 bits and read as float32",
        low=True,
    )
    FLOAT32_PART = PassReason(
        "float32-part", "float32 by construction", "is part of training that needs float32"
    )
    COUNT = PassReason(
        "count",
        "counts keep float32 until they are normalised",
        "holds counts or positions; {precision} is exact only up to {exact}",
        danger=True,
    )
    DEMAND = PassReason(
        "demand",
        "small errors of it matter",
        "feeds angles, indices or logarithms, where small errors matter",
        danger=True,
    )
    DENY_LIST = PassReason(
        "deny-list", "it is on the deny list", "loses too much accuracy in {precision}", danger=True
    )
    DOWNSTREAM_OF_DENY = PassReason(
        "downstream-of-deny",
        "denied, reached forward from",
        "uses a result that needs float32",
        danger=True,
    )
    SQUARE = PassReason(
        "square-before-reduction",
        "denied",
        "squares values for a sum, which can overflow {precision}",
        danger=True,
    )
    SEQUENCE_DENIED = PassReason(
        "sequence-denied", "its sequence stays float32", "handles a sequence that stays float32"
    )
    PRESERVED = PassReason("preserved", "the user preserves it", "is kept by --preserve")
    NODE_RULE = PassReason("node-rule", "a node rule keeps it", "is kept by a node rule")
    DENY_OP = PassReason(
        "deny-op",
        "the user asked for it with the option --deny-op",
        "is kept by --deny-op",
        danger=True,
    )
    DENIED = PassReason(
        "denied-by-user",
        "your own list denies its operator",
        "is of an operator that your own list denies",
        danger=True,
    )
    UNLISTED = PassReason("unlisted", "it is on no list, by decision", "is left alone (op list)")
    UNKNOWN_OPERATOR = PassReason(
        "unknown-operator", "it is a boundary", "is an operator on no op list"
    )
    FIXED_TYPE = PassReason(
        "fixed-type", "the operator's schema fixes this type", "accepts only float32 here"
    )
    TYPE_UNSUPPORTED = PassReason(
        "type-unsupported",
        "the operator's schema does not admit {precision} here",
        "does not accept {precision} at this opset",
    )
    OPSET_TOO_OLD = PassReason(
        "opset-too-old",
        "Cast gives no {precision} at the model's opset; --opset raises it",
        "has an opset without {precision}; --opset raises it",
    )
    NO_KERNEL = PassReason(
        "no-kernel",
        "target {target} has no {precision} kernel for it",
        "has no {precision} kernel on target {target}",
    )
    QUANTIZED = PassReason("quantized", "it is quantised", "is quantised already")
    CONSTANT_OVERFLOW = PassReason(
        "constant-overflow",
        "a constant does not fit",
        "uses a constant that is too large for {precision}",
        danger=True,
    )
    CONSTANT_UNDERFLOW = PassReason(
        "constant-underflow",
        "a constant rounds to zero",
        "needs a constant that is too small for {precision}",
        danger=True,
    )
    CERTAIN_OVERFLOW = PassReason(
        "certain-overflow",
        "a number does not fit",
        "overflows {precision} for every input",
        danger=True,
    )
    LIKELY_OVERFLOW = PassReason(
        "likely-overflow",
        "numbers are likely not to fit, by an estimate",
        "probably overflows {precision}",
        danger=True,
    )
    VARIABLE_READ = PassReason(
        "variable-read",
        "it reads a training variable, and the cast comes after the read",
        "reads a variable that training keeps in float32",
    )
    NOT_BETWEEN = PassReason(
        "not-between-allow",
        "an infer operator that is neither between allow operators nor directly after one",
        "is safe, but not worth a cast",
    )
    NOT_NEXT = PassReason(
        "not-next-to-allow",
        "a clear operator that is not next to an allow one",
        "moves data between float32 operators",
    )
    NO_ALLOW = PassReason(
        "no-allow-operator",
        "the model has no allow operator to be next to",
        "is in a model where nothing gains from {precision}",
    )
    CONSTANT = PassReason(
        "constant",
        "a constant that something reads as float32",
        "is a constant that is read as float32",
    )


def phrase(reason: str, precision: str, target: str) -> str:
    """Return what a reason says of a rewrite to `precision` for `target`."""
    said = reason.phrase if isinstance(reason, (Reason, PassReason)) else reason
    return _filled(said, precision, target)


def plain_phrase(reason: str, precision: str, target: str) -> str:
    """Return what a reason says of a node, in words that need no knowledge of how it works."""
    said = reason.plain if isinstance(reason, (Reason, PassReason)) else reason
    return _filled(said, precision, target)


def _filled(said: str, precision: str, target: str) -> str:
    exact = f"{2 / LOW[precision].epsilon:,.0f}" if precision in LOW else "few integers"
    for name, filled in {"precision": precision, "target": target, "exact": exact}.items():
        said = said.replace(f"{{{name}}}", filled)  # a rule of the user may have other braces
    return said
