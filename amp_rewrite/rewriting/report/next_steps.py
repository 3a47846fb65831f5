"""Next steps after a rewrite: a sentence and a command each, the most useful first."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import NamedTuple

from amp_rewrite.rewriting.paint.painting import Reason
from amp_rewrite.rewriting.report.rewrite_report import Report

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
    rtol: float | None = None

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


def _convert(report: Report, names: Names) -> str:
    """Return the command of this conversion."""
    files = f"{shlex.quote(names.model)} -o {shlex.quote(names.output)}"
    opset = "" if report.opset_raised is None else f" --opset {report.opset}"
    return f"amp-rewrite convert {files}{_options(report)}{opset}"


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
    rtol = "" if names.rtol is None else f" --rtol {names.rtol:g}"
    is_low = bool(report.summary.nodes_converted)  # else nothing could differ
    if holds is None and is_low and names.written:
        yield NextStep(
            "Compare the result with the original: on made-up inputs, or on yours (--data).",
            f"amp-rewrite verify {both}{_options(report, '--target', '--input-range')}",
        )
    elif holds is False:
        if is_low and names.written:
            yield NextStep(
                "Find the node that causes the error.",
                f"amp-rewrite localise {both}{_options(report, '--target')}",
            )
        elif is_low:
            yield NextStep(
                "Write the model anyway, to find the node that causes the error.",
                f"{_convert(report, names)}{names.with_data or ' --verify'}{rtol} --write-failed",
            )
        if not names.data:
            why = f"Replace the made-up inputs by real ones, and convert with --data {_INPUTS}."
            yield _make_inputs(report, names, why)


def _about_coverage(report: Report, names: Names) -> Iterator[NextStep]:
    model, options = shlex.quote(names.model), _options(report)
    if Reason.LIKELY_OVERFLOW in report.kept and names.data:
        yield NextStep(
            "Estimates keep nodes in float32. Measure on your data, or use --input-range.",
            f"amp-rewrite calibrate {model}{names.with_data} -o calibrated.yaml{options}",
        )
    elif Reason.LIKELY_OVERFLOW in report.kept:
        yield _make_inputs(
            report,
            names,
            "Estimates keep nodes in float32. Convert with real inputs (--data "
            f"{_INPUTS}), or name the range of an input (--input-range).",
        )
    if report.functions == "boundaries":
        yield NextStep(
            "Inline the model's functions to convert what is inside.",
            f"{_convert(report, names)} --inline-functions",
        )
    if report.boundaries:
        yield NextStep(
            "List the operators on no op list, and add the safe ones to your own op list.",
            f"amp-rewrite check-lists --model {model}",
        )
