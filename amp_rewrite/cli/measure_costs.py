"""`amp-rewrite measure-costs`: measure what operators and casts take on a provider."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from amp_rewrite import targets
from amp_rewrite.base.progress import progress_bar
from amp_rewrite.cli import common
from amp_rewrite.cli.streams import delivered
from amp_rewrite.kernels.cost_files import read_table, to_text
from amp_rewrite.numerics.measure.cost_probe import measure_costs as measured
from amp_rewrite.rewriting.report.write_text import write_text


def measure_costs(
    provider: Annotated[
        str,
        typer.Option(
            help="Execution provider, or the name of its target; openvino is that engine."
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The table of costs, for --costs.")
    ],
    precision: Annotated[
        str | None,
        typer.Option(help="float16 or bfloat16. Default: the first that the target computes in."),
    ] = None,
    threads: Annotated[int, typer.Option(min=0, help="Threads inside an operator; 0 is all.")] = 0,
    sessions: Annotated[
        int,
        typer.Option(min=1, help="How often each small model is loaded; the least time counts."),
    ] = 4,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Measure this family of operators only, or pairs: the casts; repeat. The rest is "
            "taken from OUTPUT, if it is there."
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option(help="Print errors only.")] = False,
) -> None:
    """Measure what operators and casts take on a provider, for --costs.

    Small models run in float32 and in 16 bits. Takes minutes; nothing else should run meanwhile.
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
        f"{rows} rates and {casts} casts of {table['runtime']} on {table['device']} -> "
        f"{delivered(output)}"
    )
