"""Next steps after a rewrite: a sentence and a command each, the most useful first."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import NamedTuple

from amp_rewrite.base.printable import counted
from amp_rewrite.rewriting.paint.painting import Reason
from amp_rewrite.rewriting.paint.passes.keep_long_sums import lengths_to_name
from amp_rewrite.rewriting.report.rewrite_report import Report

MORE = 4
"""How many times the budget of a search that ended early is suggested for the next."""

_INPUTS = "inputs.npz"
"""Where made-up inputs are suggested to be written."""


class NextStep(NamedTuple):
    """One thing to try: why, a sentence, and the command to type."""

    why: str
    command: str


class Names(NamedTuple):
    """The names of the files in the commands, and whether the rewritten model is `written`."""

    model: str
    output: str
    data: tuple[str, ...] = ()
    written: bool = True

    @property
    def with_data(self) -> str:
        """The options that name the data; nothing if none were given."""
        return "".join(f" --data {shlex.quote(each)}" for each in self.data)


def next_steps(report: Report, names: Names, holds: bool | None) -> tuple[NextStep, ...]:
    """Return what to try next; no command reads a file that is not there.

    `holds` is None if the rewrite was not verified.
    """
    steps = (*_about_accuracy(report, names, holds), *_about_coverage(report, names))
    once = {step.command: step for step in reversed(steps)}
    return tuple(reversed(once.values()))


def longer_search(report: Report, names: Names, rtol: float | None, budget: float) -> NextStep:
    """Return the command with a larger budget, where one ended before its end."""
    limit = "" if rtol is None else f" --rtol {rtol:g}"
    return NextStep(
        "Give it more time, or allow a larger error.",
        f"{_convert(report, names)}{names.with_data or ' --verify'}{limit} "
        f"--budget {MORE * budget:g}s",
    )


def measured_conversion(report: Report, names: Names) -> str:
    """Return the command that measures on data whether values overflow."""
    return f"{_convert(report, names)}{names.with_data or f' --data {_INPUTS}'}"


def strict_conversion(report: Report, names: Names) -> NextStep:
    """Return the command that fails where nothing can be converted."""
    return NextStep(
        "Fail if nothing can be converted, instead of writing the model unchanged.",
        f"{_convert(report, names, opset='')} --strict",
    )


def inlined_conversion(report: Report, names: Names) -> Iterator[NextStep]:
    """Yield the command that converts what is inside of functions, where a model calls some."""
    if report.functions == "boundaries":
        yield NextStep(
            "Inline the model's functions to convert what is inside.",
            f"{_convert(report, names)} --inline-functions",
        )


def _convert(report: Report, names: Names, opset: str | None = None) -> str:
    """Return the command of this conversion; at another opset if one is named."""
    files = f"{shlex.quote(names.model)} -o {shlex.quote(names.output)}"
    if opset is None and report.opset_raised is not None:
        opset = str(report.opset)
    return f"amp-rewrite convert {files}{_options(report)}{f' --opset {opset}' if opset else ''}"


def _options(report: Report, *only: str) -> str:
    """Return the options, or some, without which a command would be about another rewrite."""
    chosen = [words for words in report.asked if not only or words[0] in only]
    return "".join(f" {shlex.join(words)}" for words in chosen)


def _make_inputs(report: Report, names: Names, why: str) -> NextStep:
    """Return the command that writes a file with inputs, to be changed into real ones."""
    options = _options(report, "--input-range")
    command = f"amp-rewrite inputs {shlex.quote(names.model)} -o {_INPUTS}{options}"
    return NextStep(why, command)


def _about_accuracy(report: Report, names: Names, holds: bool | None) -> Iterator[NextStep]:
    both = f"{shlex.quote(names.model)} {shlex.quote(names.output)}{names.with_data}"
    if holds is None:
        if not names.data:
            why = f"Use your own inputs (one array each in {_INPUTS}), or generate some."
            yield _make_inputs(report, names, why)
        if names.written:
            yield NextStep(
                "Verify the result: compare it with the original.",
                f"amp-rewrite verify {both}{_options(report, '--target', '--input-range')}",
            )
    elif not holds:
        if names.written:
            yield NextStep(
                "Verification failed. Find the node that causes the error.",
                f"amp-rewrite localise {both}{_options(report, '--target')}",
            )
        else:
            yield NextStep(
                "Verification failed. Write the model anyway, to find the cause of the error.",
                f"{_convert(report, names)}{names.with_data or ' --verify'} --write-failed",
            )
        if not names.data:
            yield _make_inputs(
                report,
                names,
                "Verification failed on made-up inputs. Replace them by real ones, and convert "
                f"with --data {_INPUTS}.",
            )


def _about_coverage(report: Report, names: Names) -> Iterator[NextStep]:
    model, options = shlex.quote(names.model), _options(report)
    advice, reasons = report.opset_advice, {reason for reason, _ in report.kept_reasons()}
    if advice is not None and not advice.lost:
        yield NextStep(
            f"Raise the opset to {advice.opset}: up to {advice.compute_converted:.1%} of the "
            f"arithmetic in {report.precision}, now {report.summary.compute_converted:.1%}.",
            _convert(report, names, opset=str(advice.opset)),
        )
    if report.unknown_lengths:
        free = " and ".join(report.unknown_lengths)
        yield NextStep(
            f"Sums of unknown length stay float32. Name the largest length of {free}.",
            f"{_convert(report, names)} {lengths_to_name(report.unknown_lengths)}",
        )
    if Reason.LIKELY_OVERFLOW in reasons and names.data:
        yield NextStep(
            "Estimates keep nodes in float32. Measure on your data, or use --input-range.",
            f"amp-rewrite calibrate {model}{names.with_data} -o calibrated.yaml{options}",
        )
    elif Reason.LIKELY_OVERFLOW in reasons:
        yield _make_inputs(
            report,
            names,
            "Estimates keep nodes in float32. Convert with real inputs (--data "
            f"{_INPUTS}), or name the range of an input (--input-range).",
        )
    yield from inlined_conversion(report, names)
    if report.boundaries:
        name = next(iter(report.boundaries))
        yield NextStep(
            f"{counted(len(report.boundaries), 'operator')} on no op list, for example {name}: "
            "list them all, and add the safe ones to your own op list.",
            f"amp-rewrite check-lists --model {model}",
        )
