"""`amp-rewrite verify`: compare a rewritten model file with the original."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from click.exceptions import Exit

from amp_rewrite import targets
from amp_rewrite.base.progress import progress_bar
from amp_rewrite.cli import common
from amp_rewrite.cli.parameters import CHECKING, Argument, Option
from amp_rewrite.numerics.compare.verify import verify as verify_models
from amp_rewrite.rewriting.report.write_text import write_text


def verify(
    original: Annotated[Path, Argument(help="The float32 model.")],
    rewritten: Annotated[Path, Argument(help="The converted model.")],
    data: Annotated[
        list[Path] | None,
        Option(
            help=f"{common.DATA_KINDS.capitalize()} Default: made-up inputs and stress inputs.",
        ),
    ] = None,
    stress: Annotated[
        bool | None,
        Option(
            "--stress/--no-stress",
            group=CHECKING,
            help="Also run stress inputs: late positions, masked rows, zeros, "
            "images in bytes. Default: without --data.",
        ),
    ] = None,
    stress_budget: Annotated[
        str | None,
        Option(
            group=CHECKING,
            help="Time for stress inputs: 90s, 10m, 1h. Default: twice the time of the rest, from "
            "5 s to 60 s.",
        ),
    ] = None,
    rtol: Annotated[
        float | None,
        Option(
            help="The largest allowed error of every element, relative to the output's peak. "
            "Default: 4.5 % of an output's spread, as a whole."
        ),
    ] = None,
    atol: Annotated[
        float | None,
        Option(group=CHECKING, help="Absolute tolerance of every element, added to --rtol."),
    ] = None,
    seed: Annotated[int, Option(group=CHECKING, help="Seed of made-up inputs.")] = 0,
    provider: Annotated[
        str | None,
        Option(
            group=CHECKING,
            help="Also run REWRITTEN on this execution provider (or the provider of this target), "
            "and compare it with the emulation.",
        ),
    ] = None,
    input_range: Annotated[
        list[str] | None,
        Option(
            group=CHECKING,
            help="NAME=LOW:HIGH: the range of an input's values; made-up inputs stay inside.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        Option(
            help="Target whose kernels are emulated. Default: the provider's target, else the "
            f"target recorded in REWRITTEN, else {targets.DEFAULT}."
        ),
    ] = None,
    report: common.ReportFile = None,
    quiet: common.Quiet = False,
) -> None:
    """Emulate REWRITTEN in its 16-bit type and compare it with ORIGINAL.

    Exit status: 0 passed, 1 failed, 4 in doubt or nothing compared.
    """
    stresses = stress is True or (stress is None and not data)
    unused = {"--stress-budget": stress_budget}
    common.refuse_unused(unused, "stress inputs", "--stress", is_there=stresses)
    common.check_files([original, rewritten], data, report=report)
    paths = data[0] if data and len(data) == 1 else data
    budget = None if stress_budget is None else common.seconds(stress_budget)
    with progress_bar("verifying", quiet=quiet) as progress:
        verification = verify_models(
            original,
            rewritten,
            paths or None,
            rtol,
            atol,
            seed=seed,
            stress=stress,
            stress_budget=budget,
            providers=None if provider is None else [targets.provider_named(provider)],
            input_ranges=input_range or (),
            target=target,
            progress=progress,
        )
    if report is not None:
        write_text(report, verification.to_json())
    if not quiet:
        common.say_cpu(target, common.console())
        common.say_cpu_provider(provider, common.console(), target=target)
        common.console().print_judged(verification.verdict, verification.lines())
    if not verification.ok:
        raise Exit(verification.verdict.exit_status)
