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
        phrase: What reports say to readers who know lists and passes; `{precision}` and `{target}`
            stand for those of the rewrite.
        plain: The same for other readers; it follows the name of a node.
        row: What docs/painting.md says, if that is not the phrase.
        danger: Whether it is about right and wrong, not about speed, kernels or rules.
        low: Whether it makes a vertex low.
    """

    __slots__ = ("danger", "low", "phrase", "plain", "row")

    def __new__(
        cls,
        word: str,
        phrase: str = "",
        plain: str = "",
        row: str = "",
        *,
        danger: bool = False,
        low: bool = False,
    ) -> Self:
        """Make a reason of its word in reports."""
        reason = super().__new__(cls, word)
        reason.phrase, reason.plain, reason.row = phrase, plain, row or phrase
        reason.danger, reason.low = danger, low
        return reason


class Reason(StrEnum):
    """The other reasons, of which the same is said: first those that make a vertex low."""

    phrase: str
    plain: str
    row: str
    danger: bool
    low: bool

    def __new__(cls, declared: PassReason) -> Self:
        """Make a reason of what is declared of it."""
        reason = str.__new__(cls, declared)
        reason.phrase, reason.plain, reason.row = declared.phrase, declared.plain, declared.row
        reason.danger, reason.low = declared.danger, declared.low
        return reason

    def __repr__(self) -> str:
        """Return the word, as records show it."""
        return repr(self.value)

    ALLOW_LIST = PassReason(
        "allow-list",
        phrase="it is on the allow list",
        plain="is fast in {precision}",
        low=True,
    )
    FORCED = PassReason(
        "forced",
        phrase="the level UNSAFE_FORCE_ALL, or --only, converts everything",
        plain="is forced by the level or by --only",
        row="the level UNSAFE_FORCE_ALL, or --only, paints everything",
        low=True,
    )
    FUSED = PassReason(
        "fused-group",
        phrase="the target computes its group as one operator",
        plain="is part of a group that the target computes as one operator",
        row="the target computes its group as one operator, which is 16-bit",
        low=True,
    )
    CONVERTED = PassReason(
        "converted-constant",
        phrase="every consumer is in {precision}, and so it is stored in that",
        plain="is a constant stored in {precision}",
        row="a Constant all of whose consumers are 16-bit",
        low=True,
    )
    GIVEN = PassReason(
        "given",
        phrase="the model computes it in {precision}",
        plain="was {precision} already",
        row="the model computes it in the 16-bit type already, and nothing speaks against it",
        low=True,
    )
    STORED = PassReason(
        "stored-constant",
        phrase="it computes as float32 and is stored in 16 bits, with a Cast after it",
        plain="is a constant stored in 16 bits and read as float32",
        row=(
            "a Constant that computes as float32 and is stored in 16 bits ([section "
            "6](#6-retyping-and-casts))"
        ),
        low=True,
    )
    FLOAT32_PART = PassReason(
        "float32-part",
        phrase="float32 by construction",
        plain="is part of training that needs float32",
        row="float32 by construction: a part of a training step",
    )
    COUNT = PassReason(
        "count",
        phrase="counts keep float32 until they are normalised",
        plain="holds counts or positions; {precision} is exact only up to {exact}",
        row="it makes or reads a count that nothing has normalised yet",
        danger=True,
    )
    DEMAND = PassReason(
        "demand",
        phrase="small errors of it matter",
        plain="feeds angles, indices or logarithms, where small errors matter",
        row=(
            "it computes an angle, an index or coordinates: an absolute error matters; or the "
            "argument of a logarithm: small numbers matter"
        ),
        danger=True,
    )
    DENY_LIST = PassReason(
        "deny-list",
        phrase="it is on the deny list",
        plain="loses too much accuracy in {precision}",
        danger=True,
    )
    DOWNSTREAM_OF_DENY = PassReason(
        "downstream-of-deny",
        phrase="denied, reached forward from",
        plain="uses a result that needs float32",
        row="denied, reached forward from a deny operator (P2)",
        danger=True,
    )
    SQUARE = PassReason(
        "square-before-reduction",
        phrase="denied",
        plain="squares values for a sum, which can overflow {precision}",
        row="a square in front of a denied reduction",
        danger=True,
    )
    SEQUENCE_DENIED = PassReason(
        "sequence-denied",
        phrase="its sequence stays float32",
        plain="handles a sequence that stays float32",
    )
    PRESERVED = PassReason(
        "preserved",
        phrase="the user preserves it",
        plain="is kept by --preserve",
    )
    NODE_RULE = PassReason(
        "node-rule",
        phrase="a node rule keeps it",
        plain="is kept by a node rule",
        row="`deny_nodes` or a node rule of a list keeps it",
    )
    DENY_OP = PassReason(
        "deny-op",
        phrase="the user asked for it with the option --deny-op",
        plain="is kept by --deny-op",
        row="`--deny-op` or `deny_ops` names its operator",
        danger=True,
    )
    DENIED = PassReason(
        "denied-by-user",
        phrase="your own list denies its operator",
        plain="is of an operator that your own list denies",
        row="a list file of yours, lists given as names, or a variable of the environment deny it",
        danger=True,
    )
    UNLISTED = PassReason(
        "unlisted",
        phrase="it is on no list, by decision",
        plain="is left alone (op list)",
    )
    UNKNOWN_OPERATOR = PassReason(
        "unknown-operator",
        phrase="it is a boundary",
        plain="is an operator on no op list",
        row="no list knows it: a boundary",
    )
    FIXED_TYPE = PassReason(
        "fixed-type",
        phrase="the operator's schema fixes this type",
        plain="accepts only float32 here",
        row="the schema fixes this type",
    )
    TYPE_UNSUPPORTED = PassReason(
        "type-unsupported",
        phrase="the operator's schema does not admit {precision} here",
        plain="does not accept {precision} at this opset",
        row="the schema does not allow the 16-bit type here",
    )
    OPSET_TOO_OLD = PassReason(
        "opset-too-old",
        phrase="Cast gives no {precision} at the model's opset; --opset raises it",
        plain="has an opset without {precision}; --opset raises it",
        row="Cast cannot make the 16-bit type at the model's opset",
    )
    NO_KERNEL = PassReason(
        "no-kernel",
        phrase="target {target} has no {precision} kernel for it",
        plain="has no {precision} kernel on target {target}",
        row="the target has no kernel for it",
    )
    QUANTIZED = PassReason(
        "quantized",
        phrase="it is quantised",
        plain="is quantised already",
        row="it is quantised: it stands between quantised tensors, or has an operand of a few bits",
    )
    CONSTANT_OVERFLOW = PassReason(
        "constant-overflow",
        phrase="a constant does not fit",
        plain="uses a constant that is too large for {precision}",
        danger=True,
    )
    CONSTANT_UNDERFLOW = PassReason(
        "constant-underflow",
        phrase="a constant rounds to zero",
        plain="needs a constant that is too small for {precision}",
        row="a small number rounds to zero where that matters",
        danger=True,
    )
    CERTAIN_OVERFLOW = PassReason(
        "certain-overflow",
        phrase="a number does not fit",
        plain="overflows {precision} for every input",
        row="it computes or reads a number that does not fit",
        danger=True,
    )
    LIKELY_OVERFLOW = PassReason(
        "likely-overflow",
        phrase="numbers are likely not to fit, by an estimate",
        plain="probably overflows {precision}",
        row="it computes or reads numbers that are likely not to fit, by an estimate",
        danger=True,
    )
    VARIABLE_READ = PassReason(
        "variable-read",
        phrase="it reads a training variable, and the cast comes after the read",
        plain="reads a variable that training keeps in float32",
    )
    NOT_BETWEEN = PassReason(
        "not-between-allow",
        phrase="an infer operator that is neither between allow operators nor directly after one",
        plain="is safe, but not worth a cast",
    )
    NOT_NEXT = PassReason(
        "not-next-to-allow",
        phrase="a clear operator that is not next to an allow one",
        plain="moves data between float32 operators",
    )
    NO_ALLOW = PassReason(
        "no-allow-operator",
        phrase="the model has no allow operator to be next to",
        plain="is in a model where nothing gains from {precision}",
    )
    CONSTANT = PassReason(
        "constant",
        phrase="a constant that something reads as float32",
        plain="is a constant that is read as float32",
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
