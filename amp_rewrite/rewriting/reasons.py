"""Why a type variable has its type: a word for programs, and the same in words for people.

Reports, the page, `explain`, `check` and docs/painting.md take both from here.
"""

from __future__ import annotations

from typing import Self

from amp_rewrite.dtypes import LOW


class PassReason(str):
    """A reason of a pass or list, or of a rule of the user, with what is said of it.

    Attributes:
        phrase: The text for readers who know lists and passes; `{precision}` and `{target}` stand
            for those of the rewrite. Without it, that is "it" and `plain`.
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
        reason.phrase, reason.plain = phrase or f"it {plain}", plain
        reason.danger, reason.low = danger, low
        return reason


class Reason:
    """The reasons of the built-in passes and lists."""

    ALLOW_LIST = PassReason(
        "allow-list", "it is on the allow list", "is fast in {precision}", low=True
    )
    FORCED = PassReason("forced", plain="is forced by the level or by --only", low=True)
    FUSED = PassReason(
        "fused-group", plain="is part of a group that the target computes as one operator", low=True
    )
    CONVERTED = PassReason(
        "converted-constant", plain="is a constant stored in {precision}", low=True
    )
    GIVEN = PassReason("given", plain="was {precision} already", low=True)
    STORED = PassReason(
        "stored-constant", plain="is a constant stored in 16 bits and read as float32", low=True
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
    SEQUENCE_DENIED = PassReason("sequence-denied", plain="handles a sequence that stays float32")
    PRESERVED = PassReason("preserved", plain="is kept by --preserve")
    NODE_RULE = PassReason("node-rule", plain="is kept by a node rule")
    DENY_OP = PassReason(
        "deny-op",
        "the user asked for it with the option --deny-op",
        "is kept by --deny-op",
        danger=True,
    )
    DENIED = PassReason(
        "denied-by-user", plain="is of an operator that your own list denies", danger=True
    )
    UNLISTED = PassReason("unlisted", plain="is left alone (op list)")
    UNKNOWN_OPERATOR = PassReason("unknown-operator", plain="is an operator on no op list")
    FIXED_TYPE = PassReason("fixed-type", plain="accepts only float32 here")
    TYPE_UNSUPPORTED = PassReason(
        "type-unsupported", plain="does not accept {precision} at this opset"
    )
    OPSET_TOO_OLD = PassReason(
        "opset-too-old", plain="has an opset without {precision}; --opset raises it"
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
        plain="needs a constant that is too small for {precision}",
        danger=True,
    )
    CERTAIN_OVERFLOW = PassReason(
        "certain-overflow", plain="overflows {precision} for every input", danger=True
    )
    LIKELY_OVERFLOW = PassReason(
        "likely-overflow", plain="probably overflows {precision}", danger=True
    )
    VARIABLE_READ = PassReason(
        "variable-read", plain="reads a variable that training keeps in float32"
    )
    NOT_BETWEEN = PassReason("not-between-allow", plain="is safe, but not worth a cast")
    NOT_NEXT = PassReason("not-next-to-allow", plain="moves data between float32 operators")
    NO_ALLOW = PassReason(
        "no-allow-operator", plain="is in a model where nothing gains from {precision}"
    )
    CONSTANT = PassReason("constant", plain="is a constant that is read as float32")
    ISOLATED = PassReason(
        "isolated",
        "no accelerated operator is left in its region, first reached from",
        "is next to no operator that gains from {precision}",
    )
    BETWEEN_ALLOW = PassReason(
        "between-allow",
        "it lies between allow operators, reached from",
        "lies between operators that are fast in {precision}",
    )
    FOLLOWS_ALLOW = PassReason(
        "follows-allow",
        "an infer operator right after",
        "directly follows an operator that is fast in {precision}",
    )
    CLEAR_NEXT_TO_ALLOW = PassReason(
        "clear-next-to-allow",
        "a clear operator next to",
        "moves data next to {precision} operators",
    )
    SCALED_NEXT_TO_ALLOW = PassReason(
        "scaled-next-to-allow",
        "it makes or reads what was scaled, next to",
        "computes with scaled numbers next to {precision} operators",
    )
    RUNTIME_FUSION = PassReason(
        "runtime-fusion", plain="follows a {precision} MatMul that ONNX Runtime would fuse it into"
    )
    LARGE_BIAS = PassReason(
        "large-bias", plain="adds numbers to scores that are too large for {precision}", danger=True
    )
    CARRIED_OVER_CALLS = PassReason(
        "carried-over-calls",
        plain="carries a state from call to call, where {precision} errors add up",
        danger=True,
    )
    CONSTANT_CUT = PassReason(
        "constant-cut", plain="uses a constant that target {target} truncates in {precision}"
    )
    DIFFERENCE = PassReason(
        "difference",
        plain="subtracts large, nearly equal numbers, which cancels in {precision}",
        danger=True,
    )
    FUSED_GROUP_FLOAT32 = PassReason(
        "fused-group-float32", plain="is part of a group that the target computes in float32"
    )
    LONG_AXIS = PassReason(
        "long-axis",
        plain="has axes that are too long for indices in {precision} on target {target}",
        danger=True,
    )
    LONG_SUM = PassReason(
        "long-sum",
        "its sums are too long for target {target}",
        "adds up too many numbers for the {precision} accumulators of target {target}",
        danger=True,
    )
    MASK = PassReason(
        "mask",
        "a mask is added",
        "adds a mask; fully masked rows would change in {precision}",
        danger=True,
    )
    SECOND_MOMENT = PassReason(
        "second-moment",
        plain="takes a product of means from a mean of products, which cancels in {precision}",
        danger=True,
    )
    OFFSET = PassReason(
        "offset",
        plain="adds a number far larger than what varies, which {precision} does not keep",
        danger=True,
    )
    CARRIED_STATE = PassReason(
        "carried-state",
        plain="carries a state from step to step, where {precision} errors add up",
        danger=True,
    )
    UNBOUNDED_SUM = PassReason(
        "unbounded-sum", plain="reads a sum that may overflow {precision}", danger=True
    )
    NO_CAST_BEHIND = PassReason(
        "no-cast-behind", plain="feeds an operator that target {target} cannot build after a Cast"
    )
    SEQUENCE_CLUSTER = PassReason(
        "sequence-cluster",
        "it handles the same sequence as",
        "handles a sequence of {precision} tensors",
    )
    CAST_MOVED = PassReason(
        "cast-moved", "moving the cast across it saves casts or bytes", "is float32 to save casts"
    )
    RETARGETED_CAST = PassReason(
        "retargeted-cast",
        "a Cast whose consumers are all 16-bit, retargeted for",
        "is a Cast that is only read in {precision}",
    )
    LOW_SCALES = PassReason(
        "low-scales",
        "quantised weights, whose scales are converted for",
        "holds quantised weights that are only read in {precision}",
    )
    OUTPUT = PassReason("output", plain="makes a float32 output, and the cast only moves")


REASONS: tuple[PassReason, ...] = tuple(
    reason for reason in vars(Reason).values() if isinstance(reason, PassReason)
)
"""All of them, first those that make a vertex low."""


def phrase(reason: str, precision: str, target: str) -> str:
    """Return what a reason says of a rewrite to `precision` for `target`."""
    said = reason.phrase if isinstance(reason, PassReason) else reason
    return _filled(said, precision, target)


def plain_phrase(reason: str, precision: str, target: str) -> str:
    """Return what a reason says of a node, in words that need no knowledge of how it works."""
    said = reason.plain if isinstance(reason, PassReason) else reason
    return _filled(said, precision, target)


def _filled(said: str, precision: str, target: str) -> str:
    exact = f"{2 / LOW[precision].epsilon:,.0f}" if precision in LOW else "few integers"
    for name, filled in {"precision": precision, "target": target, "exact": exact}.items():
        said = said.replace(f"{{{name}}}", filled)  # a rule of the user may have other braces
    return said
