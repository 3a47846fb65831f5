"""`amp-rewrite verify`: compare a rewritten model file with the original."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from amp_rewrite import targets
from amp_rewrite.base.progress import progress_bar
from amp_rewrite.cli import common
from amp_rewrite.errors import OptionError
from amp_rewrite.numerics.compare.verify import verify as verify_models
from amp_rewrite.numerics.compare.verify_report import print_verify
from amp_rewrite.rewriting.report.write_text import write_text


def verify(
    context: typer.Context,
    original: Annotated[Path, typer.Argument(help="The model before.")],
    rewritten: Annotated[Path, typer.Argument(help="The model after.")],
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data",
            help="An .npz file with one array per input, or a folder of them; repeat. Without it "
            "plausible inputs are made up, and stress inputs tried.",
        ),
    ] = None,
    stress: Annotated[
        bool | None,
        typer.Option(
            "--stress/--no-stress",
            help="Try extremes too: late positions, long sequences, masked rows, bytes of images, "
            "zeros. Default: if there are no data.",
        ),
    ] = None,
    stress_budget: Annotated[
        str | None,
        typer.Option(help="90s, 10m, 1h for them; default: twice what the rest took, 5 s to 60 s."),
    ] = None,
    rtol: Annotated[
        float | None,
        typer.Option(
            help="Every element must be within this share of its output's largest magnitude; "
            "default: an output as a whole must be within 4.5 % of its size."
        ),
    ] = None,
    atol: Annotated[
        float | None,
        typer.Option(help="Absolute tolerance of every element, beside --rtol."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of made-up inputs.")] = 0,
    provider: Annotated[
        str | None,
        typer.Option(
            help="Run REWRITTEN itself on this execution provider too, or on that of a target, "
            "and say how far the emulation was from it."
        ),
    ] = None,
    arm64_folder: common.ArmFolder = None,
    input_range: Annotated[
        list[str] | None,
        typer.Option(
            "--input-range", help="What an input holds, NAME=LOW:HIGH; nothing else is made up."
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="Whose kernels to emulate: they keep sums in float32, or lower. Default: that of "
            f"the provider, else that which REWRITTEN says it was made for, or {targets.DEFAULT}."
        ),
    ] = None,
    report: common.ReportFile = None,
    quiet: Annotated[bool, typer.Option(help="Print errors only.")] = False,
) -> None:
    """Emulate REWRITTEN in its low precision and compare it with ORIGINAL.

    Exit 1 if it differs, 4 in doubt.
    """
    if report is not None and report.resolve() in (original.resolve(), rewritten.resolve()):
        raise OptionError("the report would overwrite a model", where=report)
    common.refuse_data(data, report)
    common.use_arm64(context, arm64_folder, provider)
    paths = data[0] if data and len(data) == 1 else data
    budget = None if stress_budget is None else common.seconds(stress_budget)
    with progress_bar("verifying", quiet=quiet) as progress:
        found = verify_models(
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
        write_text(report, found.to_json())
    if not quiet:
        common.say_cpu(target, common.console())
        common.say_cpu_provider(provider, common.console(), target=target)
        print_verify(found, common.console())
    if not found.ok:
        raise typer.Exit(common.FAILED if found.doubt is None else common.IN_DOUBT)
