"""The sentences of a `verify` report about outputs: what fails, by how much, and what decides.

Evidence: that of verification.py, whose findings these are.
"""

from __future__ import annotations

from collections.abc import Sequence

from amp_rewrite.base.printable import percent, printable, share
from amp_rewrite.numerics.compare.distance import (
    AGREEMENT,
    ERROR,
    LARGEST,
    SLICE_ERROR,
    OutputComparison,
    Tolerances,
)

Outputs = Sequence[OutputComparison]

UNEXPLAINED = 5.0
"""An error that many times the predicted one points at a fault that is no rounding."""


def failure_of(output: OutputComparison) -> str:
    """Return why an output fails, in one line: by the first measure that does."""
    return f"output {output.name}{': ' if output.fault != 'shape' else ' '}{fault_of(output)}"


def fault_of(output: OutputComparison) -> str:
    """Return the same without the output's name."""
    of = f"of its {output.of}, at most"
    outside = output.elements - round(output.within * output.elements)
    said = {
        "shape": "has another shape",
        "lost": f"{output.inf + output.nan} elements are infinite or NaN, finite in the original",
        "error": f"error {percent(output.error or 0)} {of} {percent(ERROR)} passes",
        "largest": f"error of single elements up to {percent(output.largest or 0)} {of} "
        f"{percent(LARGEST)} passes",
        "slice": str(output.slice),
        "classes": f"only {share(output.top1 or 0, 1)} of the rows have the same top-1 class",
    }
    return said.get(
        output.fault,
        f"{outside} of {output.elements} elements exceed the tolerance, "
        f"largest absolute error {output.max_abs:.3g}",
    )


def doubt_of(output: OutputComparison, alone: Outputs = (), precision: str = "") -> str:
    """Return why nobody can tell whether an output that fails is right.

    Args:
        output: The output, which a yardstick excuses.
        alone: How far that yardstick moves outputs.
        precision: The type of the weights.
    """
    far = next((f" ({fault_of(o)})" for o in alone if o.name == output.name and not o.ok), "")
    if output.excuse == "weights":
        to = f" to {precision}" if precision else ""
        return f"{failure_of(output)}; rounding the weights alone{to} gives the same error{far}"
    changes = "so does the float32 original when its inputs change by one part in 1,000,000"
    return f"{failure_of(output)}; {changes}{far}"


def error_of(output: OutputComparison, *, strict: bool = False) -> str:
    """Return how far an output is off, and relative to what."""
    if output.error is None:
        return f"{share(1 - output.within)} of the elements of output {output.name} differ"
    if strict:
        return f"error {percent(output.scaled_error)} of the peak of output {output.name}"
    return f"error {percent(output.error)} of the {output.of} of output {output.name}"


def worst_of(outputs: Outputs) -> OutputComparison | None:
    """Return the output that is nearest to its limits, or furthest beyond them."""
    compared = [output for output in outputs if output.compared]
    return max(compared, key=lambda o: (o.share, o.error or 0.0), default=None)


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


def explained(output: OutputComparison, predicted: float) -> str:
    """Return how much of an output's error rounding explains."""
    error = output.error or 0.0
    if not error or error <= UNEXPLAINED * predicted:
        return (
            f"output {output.name}: rounding is predicted to make an error of {percent(predicted)}"
        )
    times = f"{error / predicted:,.0f} times " if predicted else ""
    return (
        f"output {output.name}: the error is {times}what rounding is predicted to make "
        f"({percent(predicted)}): look for a fault that is no rounding, such as a wrong kernel "
        "or a broken rewrite"
    )


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
