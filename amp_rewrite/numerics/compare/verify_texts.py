"""The sentences of a `verify` report: what decides, the yardsticks, and what was not compared.

Evidence: that of verification.py, whose findings these are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from amp_rewrite.base.printable import percent, printable, share
from amp_rewrite.numerics.compare.distance import (
    AGREEMENT,
    DISTANCE,
    SLICE_DISTANCE,
    OutputComparison,
    Tolerances,
)
from amp_rewrite.numerics.compare.verify_records import DeviceComparison, Infinity, failure_of
from amp_rewrite.numerics.compare.weights_alone import AS_FAR, is_as_far

Outputs = Sequence[OutputComparison]


def test_of(limits: Tolerances) -> str:
    """Return the test that each output has to pass."""
    if limits.strict:
        bounds = (
            *((f"{limits.rtol:.3g} of the output's peak",) if limits.rtol else ()),
            *((f"{limits.atol:.3g}",) if limits.atol or not limits.rtol else ()),
        )
        return (
            f"test: every element within {' + '.join(bounds)}. Slices of another scale are "
            "measured by their own peak"
        )
    return (
        f"test: distance at most {percent(DISTANCE)} of the output's size. Slices of another "
        f"scale: at most {percent(SLICE_DISTANCE)} of the slice's size. The top-1 class is the "
        f"same in {share(AGREEMENT, 0)} of the rows. An output whose "
        f"elements are all within {percent(limits.rtol)} of its peak plus {percent(limits.rtol)} "
        "of their own size need not pass the first and the last test"
    )


def asked_for(limits: Tolerances) -> str:
    """Return the tolerance by its name: what was asked for, or the usual one."""
    if not limits.strict:
        return "the tolerance"
    numbers = {"rtol": limits.rtol, "atol": limits.atol}
    named = [f"{name} {number:.3g}" for name, number in numbers.items() if number]
    return " with ".join(named) or "a tolerance of 0"


def unsteady_line(output: OutputComparison, moves: Outputs) -> str:
    """Return why an output holds that is beyond the tolerance, as the original's moves are."""
    moved = next(other for other in moves if other.name == output.name)
    return (
        f"output {output.name} exceeds the tolerance, but so does the float32 original when its "
        f"inputs change by one part in 1,000,000 ({failure_of(moved)}); up to {AS_FAR:g} times "
        "that change passes"
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
    original: Mapping[str, OutputComparison] = {output.name: output for output in control}
    if all(o.name in original and is_as_far(o, original[o.name], limits) for o in failed):
        return (
            f"rounding the weights alone to {precision} gives the same error: "
            f"{failure_of(original[failed[0].name])}"
        )
    if not untold or any(output.nan or output.inf for output in failed):
        return None
    return (
        "nodes inside If, Loop or Scan select by values, and the comparison could not use the "
        f"original's selection ({untold[0]}). A swapped near tie may be the only difference"
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
        f"output {output.name} is {output.constant:g} everywhere in both models, so it proves "
        "nothing"
    )


def apart_line(output: OutputComparison) -> str:
    """Return what is apart in an output."""
    return (
        f"output {output.name}: {output.apart} elements in fully masked rows do not count; their "
        f"worst error is {percent(output.apart_error)} of its peak"
    )


def uncompared_line(outputs: Outputs, left_out: Sequence[str]) -> str:
    """Return why nothing was compared."""
    if left_out:
        return f"nothing was compared: {left_out[0]}"
    constant = [f"{o.name} is {o.constant:g}" for o in outputs if o.constant is not None]
    why = f"output {constant[0]} everywhere in both models" if constant else "no elements"
    return f"nothing was compared: {why}"


def against_itself(outputs: Outputs) -> str:
    """Return which outputs hold because the original is as unsteady, as the end of a verdict."""
    names = [o.name for o in outputs if o.as_original]
    kind = "output" if len(names) == 1 else "outputs"
    return f" ({kind} {', '.join(names)} within the original's own changes)" if names else ""


def output_line(output: OutputComparison) -> str:
    """Return how far an output is off, in every measure that it has."""
    verdict = ("ok" if output.compared else "nothing to compare") if output.ok else "FAILED"
    measures = [f"error {percent(output.scaled_error)} of its peak"]
    if output.distance is not None:
        measures.append(f"distance {percent(output.distance)} of its size")
    if output.slice is not None:
        measures.append(f"worst slice {percent(output.slice.distance)} of the slice's size")
    if output.cosine is not None:
        measures.append(f"cosine {output.cosine:.6f}")
    measures.append(f"largest absolute error {output.max_abs:.3g}")
    if output.top1 is not None:
        measures.append(f"same top-1 class in {share(output.top1, 1)} of the rows")
    if output.within < 1:
        measures.append(f"{share(output.within)} of the elements are within the tolerance")
    if output.nan or output.inf:
        measures.append(f"{output.nan} NaN, {output.inf} infinite")
    return printable(f"output {output.name}: {verdict}; {', '.join(measures)}")


def device_lines(device: DeviceComparison) -> list[str]:
    """Return what a device made of the model."""
    names = ", ".join(device.providers)
    excuses = () if device.asked else device.excuses  # else they are among the failures
    if device.error is not None:
        return [f"{names} could not run the model: {device.error}", *excuses]
    return [
        f"{names} against the emulation:",
        *map(output_line, device.outputs),
        f"{names} against the original:",
        *map(output_line, device.original),
        *excuses,
        *device.notes,
    ]
