"""`amp-rewrite verify`: compare a rewritten model file with the original."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from click.exceptions import Exit

from amp_rewrite import targets
from amp_rewrite.base import arguments
from amp_rewrite.base.progress import progress_bar
from amp_rewrite.cli import common
from amp_rewrite.cli.parameters import CHECKING, argument, option
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.numerics.budget.error_budget import error_budget
from amp_rewrite.numerics.compare.made_up_inputs import make_inputs
from amp_rewrite.numerics.compare.verify import verify as verify_models
from amp_rewrite.rewriting.plan.input_ranges import input_ranges


def verify(
    original: Path = argument("The float32 model."),
    rewritten: Path = argument("The converted model."),
    data: list[Path] | None = option(
        None, f"{common.DATA_HELP} Default: made-up inputs and stress inputs."
    ),
    stress: bool | None = option(
        None,
        "Also run stress inputs: late positions, masked rows, zeros, images in bytes. "
        "Default: without --data.",
        group=CHECKING,
    ),
    stress_budget: str | None = option(
        None,
        "Time for stress inputs: 90s, 10m, 1h. Default: twice the time of the rest, "
        "from 5 s to 60 s.",
        group=CHECKING,
    ),
    rtol: float | None = option(
        None,
        "The largest allowed error of every element, relative to the output's peak. "
        "Default: the error of all elements together is at most 4.5 % of an output's spread.",
    ),
    atol: float | None = option(
        None, "Absolute tolerance of every element, added to --rtol.", group=CHECKING
    ),
    seed: int = option(0, "Seed of made-up inputs.", group=CHECKING),
    provider: str | None = common.PROVIDER,
    input_range: list[str] | None = common.INPUT_RANGE,
    target: str | None = option(
        None,
        "Target whose kernels are emulated. Default: the provider's target, else the "
        f"target recorded in REWRITTEN, else {targets.DEFAULT}.",
    ),
    budget: bool = option(
        False,
        "A switch, without a time: also predict the error that rounding makes. A much larger error "
        "has another cause.",
        group=CHECKING,
    ),
    report: Path | None = common.REPORT,
    quiet: bool = common.QUIET,
) -> None:
    """Emulate REWRITTEN in its 16-bit type and compare it with ORIGINAL.

    Exit status: 0 passed, 1 failed, 4 in doubt or nothing compared.
    """
    stresses = stress is True or (stress is None and not data)
    if not stresses:
        unused = {"--stress-budget": stress_budget}
        arguments.refuse(unused, "has no effect without stress inputs", "add --stress")
    common.check_files([original, rewritten], data, report=report)
    common.announce_time([original, rewritten], data, quiet=quiet)
    paths = data[0] if data and len(data) == 1 else data
    seconds = None if stress_budget is None else common.seconds(stress_budget)
    with progress_bar("verifying", quiet=quiet) as progress:
        verification = verify_models(
            original,
            rewritten,
            paths or None,
            rtol,
            atol,
            seed=seed,
            stress=stress,
            stress_budget=seconds,
            providers=None if provider is None else [targets.provider_named(provider)],
            input_ranges=input_range or (),
            target=target,
            progress=progress,
        )
        if budget:
            progress("measuring what rounding adds")
            ranges = input_ranges(input_range or ())
            feeds = paths or make_inputs(original, seed=seed, ranges=ranges).batches
            expected = error_budget(
                original, feeds, rewritten=rewritten, target=verification.target
            )
            verification = replace(verification, predicted=expected.predicted)
    common.write_report(report, verification.to_json)
    out = common.console(quiet=quiet)
    common.say_cpu(out, target, provider)
    out.print_judged(verification.verdict, verification.lines())
    if verification.precision == FLOAT32.name:
        out.print(f"{rewritten} has nothing in 16 bits: are the two models in the right order?")
    if not verification.ok:
        raise Exit(verification.verdict.exit_status)
