"""The sentences of a `verify` report: what decides, the yardsticks, and what was not compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from amp_rewrite.base.printable import percent, share
from amp_rewrite.numerics.compare.distance import (
    AGREEMENT,
    DISTANCE,
    SLICE_DISTANCE,
    OutputComparison,
    Tolerances,
)
from amp_rewrite.numerics.compare.verify_records import Infinity, failure_of, worst_of
from amp_rewrite.numerics.compare.weights_alone import AS_FAR, is_as_far

Outputs = Sequence[OutputComparison]


def test_of(limits: Tolerances) -> str:
    """Return the test that each output has to pass."""
    if limits.strict:
        bounds = (
            *((f"{limits.rtol:.3g} of the output's largest magnitude",) if limits.rtol else ()),
            *((f"{limits.atol:.3g}",) if limits.atol or not limits.rtol else ()),
        )
        return (
            f"an output passes if every element is within {' + '.join(bounds)}, a slice of "
            "another scale within that of its own"
        )
    return (
        f"an output passes if its distance is at most {percent(DISTANCE)} of its size, that of "
        f"each slice of another scale at most {percent(SLICE_DISTANCE)} of the slice's, and "
        f"{share(AGREEMENT, 0)} of its rows have the same top-1 class; the first and the last "
        f"are not asked if 100 % are within {limits.rtol:.2g} of the largest magnitude plus "
        f"{limits.rtol:.2g} of their own"
    )


def control_line(precision: str, control: Outputs, outputs: Outputs) -> str:
    """Return what the rounded weights bring alone, which no choice of operators mends."""
    return (
        f"the weights alone, rounded to {precision} and computed in float32: off by at most "
        f"{worst_of(control):.2g} of an output's largest magnitude, the model by "
        f"{worst_of(outputs):.2g}"
    )


def control_beyond(precision: str, control: Outputs, limits: Tolerances) -> str:
    """Return that the rounded weights alone exceed a tolerance."""
    most = f"; at most {max(limits.rtol, limits.atol):.3g} is allowed" if limits.strict else ""
    return (
        f"the weights alone, rounded to {precision} and computed in float32, exceed the "
        f"tolerance: off by {worst_of(control):.2g} of an output's largest magnitude{most}. "
        "Only weights that stay float32 mend that"
    )


def moves_line(moves: Outputs) -> str:
    """Return how far the original moves by itself, which no arithmetic mends."""
    return (
        "the original itself in float32, its inputs moved by one part in 1,000,000: off by at "
        f"most {worst_of(moves):.2g} of an output's largest magnitude"
    )


def unsteady_line(output: OutputComparison, moves: Outputs) -> str:
    """Return why an output holds that is beyond the tolerance, as the original's moves are."""
    moved = next(other for other in moves if other.name == output.name)
    return (
        f"output {output.name} is beyond the tolerance, and so is the original itself where "
        f"its inputs move by one part in 1,000,000 ({failure_of(moved)}): no arithmetic can be "
        f"right to the tolerance, and up to {AS_FAR:g} times as far counts as right"
    )


def doubt_of(
    failed: Outputs, control: Outputs, limits: Tolerances, precision: str, untold: Sequence[str]
) -> str | None:
    """Return why outputs that fail may be as good as they can be, or None.

    Args:
        failed: The outputs.
        control: How far the rounded weights alone are off.
        limits: The tolerances.
        precision: The type of these weights.
        untold: Why choices inside bodies could not be told.
    """
    known: Mapping[str, OutputComparison] = {output.name: output for output in control}
    if all(o.name in known and is_as_far(o, known[o.name], limits) for o in failed):
        return (
            f"the weights alone, rounded to {precision} and computed in float32, are as far "
            f"off: {failure_of(known[failed[0].name])}"
        )
    if not untold or any(output.nan or output.inf for output in failed):
        return None
    return (
        "nodes inside If, Loop or Scan select by numbers, and outputs could not be compared "
        f"for the original's choices: {untold[0]}. A swapped near tie may be all that differs"
    )


def overflow_line(infinities: Sequence[Infinity], outputs: Outputs) -> str:
    """Return what overflows inside, and whether the outputs show it."""
    first = infinities[0]
    kind = "infinite" if first.inf else "NaN"
    place = f" ({first.op} {first.node})" if first.op else ""
    finite = all(not o.inf and not o.nan for o in outputs)
    return (
        f"{len(infinities)} values inside overflow, first {first.value}{place}: "
        f"{first.inf or first.nan} elements are {kind} where the original is finite"
        + ("; the outputs absorb it" if finite else "")
    )


def constant_line(output: OutputComparison) -> str:
    """Return that an output is one number everywhere."""
    return (
        f"output {output.name} is {output.constant:g} everywhere, in both models: nothing was "
        "compared in it"
    )


def apart_line(output: OutputComparison) -> str:
    """Return what is apart in an output."""
    return (
        f"output {output.name}: {output.apart} elements in rows that are masked whole are apart, "
        f"off by at most {output.apart_error:.2g} of its largest magnitude"
    )


def uncompared_line(outputs: Outputs, left_out: Sequence[str]) -> str:
    """Return why nothing was compared."""
    if left_out:
        return f"nothing was compared: {left_out[0]}"
    constant = [f"{o.name} is {o.constant:g}" for o in outputs if o.constant is not None]
    why = f"output {constant[0]} everywhere, in both models" if constant else "no elements"
    return f"nothing was compared: {why}"


def against_itself(outputs: Outputs) -> str:
    """Return which outputs hold because the original is as unsteady, as the end of a verdict."""
    names = [o.name for o in outputs if o.as_original]
    kind = "output" if len(names) == 1 else "outputs"
    return f", {kind} {', '.join(names)} no better than the original itself" if names else ""
