"""`amp-rewrite measure-costs`: measure what operators and casts take on a provider."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from amp_rewrite import targets
from amp_rewrite.base.progress import progress_bar
from amp_rewrite.cli import common
from amp_rewrite.kernels.cost_files import read_table, to_text
from amp_rewrite.numerics.measure.cost_probe import measure_costs as measured
from amp_rewrite.rewriting.report.write_text import write_text


def measure_costs(
    provider: Annotated[
        str,
        typer.Option(
            help="Execution provider, or a target's name; openvino is the OpenVINO engine."
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The cost table to write, for --costs.")
    ],
    precision: Annotated[
        str | None,
        typer.Option(help="float16 or bfloat16. Default: the first that the target supports."),
    ] = None,
    threads: Annotated[int, typer.Option(min=0, help="Threads per operator (0 = all cores).")] = 0,
    sessions: Annotated[
        int,
        typer.Option(min=1, help="Sessions per small model; the shortest time counts."),
    ] = 4,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Measure only this family of operators (pairs = casts); repeatable. Other costs "
            "come from OUTPUT if it exists."
        ),
    ] = None,
    quiet: common.Quiet = False,
) -> None:
    """Measure the time of operators and casts on a provider, for --costs.

    Runs small models in float32 and in 16 bits. This takes minutes; nothing else should run.
    """
    before = read_table(str(output)) if only and output.exists() else None
    with progress_bar("measuring", quiet=quiet) as progress:
        table = measured(
            targets.provider_named(provider),
            precision,
            threads=threads,
            sessions=sessions,
            only=only or (),
            before=before,
            progress=progress,
        )
    write_text(output, to_text(table).rstrip("\n"))
    rows, casts = len(table["costs"]), len(table["casts"])
    common.console(quiet=quiet).print(
        f"{rows} rates and {casts} casts of {table['runtime']} on {table['device']} -> {output}"
    )
