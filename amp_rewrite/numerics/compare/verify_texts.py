"""The sentences of a `verify` report: what decides, the yardsticks, and what was not compared.

Evidence: that of verification.py, whose findings these are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from amp_rewrite.base.printable import percent, printable, share
from amp_rewrite.numerics.compare.distance import (
    AGREEMENT,
    ERROR,
    LARGEST,
    SLICE_ERROR,
    OutputComparison,
    Tolerances,
)
from amp_rewrite.numerics.compare.verify_records import DeviceComparison, Infinity, failure_of

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
        f"test: error (root mean square) at most {percent(ERROR)} of the output's spread, that of "
        f"an element at most {percent(LARGEST)}. Slices of another scale: at most "
        f"{percent(SLICE_ERROR)} of the slice's. The top-1 class is the same in "
        f"{share(AGREEMENT, 0)} of the rows"
    )


def asked_for(limits: Tolerances) -> str:
    """Return the tolerance by its name: what was asked for, or the usual one."""
    if not limits.strict:
        return "the tolerance"
    numbers = {"rtol": limits.rtol, "atol": limits.atol}
    named = [f"{name} {number:.3g}" for name, number in numbers.items() if number]
    return " with ".join(named) or "a tolerance of 0"


def weights_beyond(control: Outputs, limits: Tolerances, precision: str) -> str:
    """Return that the rounded weights alone exceed the tolerance, for who is about to search."""
    far = max((output.scaled_error for output in control), default=0.0)
    return (
        f"{asked_for(limits)} is below the error of rounding the weights to {precision}: "
        f"{percent(far)} of the output's peak. Only float32 weights can meet it"
    )


def doubt_of(
    output: OutputComparison,
    yardsticks: Mapping[str, OutputComparison],
    untold: Sequence[str],
    precision: str,
) -> str | None:
    """Return why nobody can tell whether an output that fails is right; None if it is wrong.

    Args:
        output: The output.
        yardsticks: How far it moves by itself, by the name of the excuse.
        untold: Why choices inside bodies could not be told.
        precision: The type of the weights.
    """
    if output.excuse:
        moved = yardsticks.get(output.excuse)
        far = "" if moved is None or moved.ok else f" ({failure_of(moved).partition(': ')[2]})"
        if output.excuse == "weights":
            why = f"rounding the weights alone to {precision} gives the same error{far}"
        else:
            why = (
                f"so does the float32 original when its inputs change by one part in 1,000,000{far}"
            )
        return f"{failure_of(output)}; {why}"
    if not untold or output.nan or output.inf or output.shape_differs:
        return None
    return (
        "nodes inside If, Loop or Scan select by values, and the comparison could not use the "
        f"original's selection ({untold[0]}). A swapped near tie may be the only difference"
    )


def moves_line(error: float) -> str:
    """Return how far the original moves by itself, which no arithmetic mends."""
    return (
        f"the float32 original changes by {percent(error)} of the output's spread when its inputs "
        "change by one part in 1,000,000"
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
        f"output {output.name} is {output.constant:g} everywhere in the original, so it proves "
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
        return left_out[0]
    constant = [f"{o.name} is {o.constant:g}" for o in outputs if o.constant is not None]
    return f"output {constant[0]} everywhere in the original" if constant else "no elements"


def output_line(output: OutputComparison) -> str:
    """Return how far an output is off, in every measure that it has."""
    verdict = ("ok" if output.compared else "nothing to compare") if output.ok else "FAILED"
    measures: list[str] = []
    if output.error is not None and output.largest is not None:
        measures.append(f"error {percent(output.error)} of its {output.of}")
        measures.append(f"largest {percent(output.largest)}")
    measures.append(f"{percent(output.scaled_error)} of its peak")
    if output.slice is not None:
        measures.append(f"worst slice {percent(output.slice.distance)} of the slice's scale")
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
