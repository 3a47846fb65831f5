"""What to try next after a rewrite: a sentence and a command each, the most useful first."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from amp_rewrite.base.printable import counted
from amp_rewrite.rewriting.paint.painting import Reason
from amp_rewrite.rewriting.report.rewrite_report import Report

MORE = 4
"""How many times the budget of a search that ended early is suggested for the next."""


class NextStep(NamedTuple):
    """One thing to try.

    Attributes:
        why: What it is good for, a sentence.
        command: The command to type.
    """

    why: str
    command: str


class Names(NamedTuple):
    """What the files are called in the commands.

    Attributes:
        model: The model before.
        output: The rewritten model.
    """

    model: str
    output: str


def next_steps(report: Report, names: Names, holds: bool | None) -> tuple[NextStep, ...]:
    """Return what to try next.

    `holds` is None if the rewrite was not verified.
    """
    model, output = shlex.quote(names.model), shlex.quote(names.output)
    options, raised = _options(report), _opset(report)
    convert = f"amp-rewrite convert {model} -o {output}{options}"
    return (
        *_about_accuracy(report, model, output, f"{convert}{raised}", holds),
        *_about_coverage(report, model, convert, options, raised),
    )


def longer_search(
    report: Report, names: Names, data: Sequence[str], rtol: float | None, budget: float
) -> NextStep:
    """Return the command that searches with a larger budget what one ended before its end."""
    words = [f"--data {shlex.quote(each)}" for each in data] or ["--verify"]
    words += [] if rtol is None else [f"--rtol {rtol:g}"]
    return NextStep(
        "Give the search more time, or allow a larger error.",
        f"amp-rewrite convert {shlex.quote(names.model)} -o {shlex.quote(names.output)}"
        f"{_options(report)}{_opset(report)} {' '.join(words)} --budget {MORE * budget:g}s",
    )


def _options(report: Report, *only: str) -> str:
    """Return the options without which a command would be about another rewrite.

    Args:
        report: What the rewrite did.
        only: The options that the command has; none for all of them.
    """
    chosen = [words for words in report.asked if not only or words[0] in only]
    return "".join(f" {shlex.join(words)}" for words in chosen)


def _opset(report: Report) -> str:
    return "" if report.opset_raised is None else f" --opset {report.opset}"


def _about_accuracy(
    report: Report, model: str, output: str, convert: str, holds: bool | None
) -> Iterator[NextStep]:
    if holds is None:
        yield NextStep(
            "Take inputs of yours (an array for each in inputs.npz), or have some made up.",
            f"amp-rewrite inputs {model} -o inputs.npz{_options(report, '--input-range')}",
        )
        yield NextStep(
            "Compare it with the original on them: nothing was verified yet.",
            f"amp-rewrite verify {model} {output} --data inputs.npz"
            f"{_options(report, '--target', '--input-range')}",
        )
    elif not holds:
        yield NextStep(
            "It does not hold. Name the node that is to blame.",
            f"amp-rewrite localise {model} {output} --data inputs.npz"
            f"{_options(report, '--target')}",
        )
        yield NextStep(
            "Measure the ranges on data, and keep in float32 what has to stay.",
            f"{convert} --data samples/",
        )


def _about_coverage(
    report: Report, model: str, convert: str, options: str, raised: str
) -> Iterator[NextStep]:
    advice, reasons = report.opset_advice, {reason for reason, _ in report.kept_reasons()}
    if advice is not None and not advice.lost:
        yield NextStep(
            f"Opset {advice.opset} lets up to {advice.compute_converted:.1%} of the arithmetic be "
            f"{report.precision}, now it is {report.summary.compute_converted:.1%}.",
            f"{convert} --opset {advice.opset}",
        )
    if report.beside_cache is not None:
        others = "".join(f" --keep-io {shlex.quote(name)}" for name in report.beside_cache)
        yield NextStep(
            "The whole cache is cast in and out at every step: keep the types of the rest alone.",
            f"{convert}{others or ' --no-keep-io-types'}",
        )
    if Reason.LIKELY_OVERFLOW in reasons:
        yield NextStep(
            "Estimates keep nodes in float32. Say what an input holds, or measure on data.",
            f"amp-rewrite calibrate {model} --data samples/ -o calibrated.yaml{options}",
        )
    if report.functions == "boundaries":
        yield NextStep(
            "Functions of the model are left as they are. Inline them to convert what is inside.",
            f"{convert}{raised} --inline-functions",
        )
    if report.boundaries:
        name = next(iter(report.boundaries))
        yield NextStep(
            f"{counted(len(report.boundaries), 'operator')} on no list, such as {name}: see all "
            "of them, and put what is safe on an op list of your own.",
            f"amp-rewrite check-lists --model {model}",
        )
    if report.summary.casts_of_unknown_size:
        yield NextStep(
            "See which casts move most, with shapes inferred.",
            f"amp-rewrite explain {model} --explain-casts{options}{raised}",
        )
