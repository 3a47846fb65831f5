"""`amp-rewrite kernels`: write down which kernels an execution provider has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from amp_rewrite import targets
from amp_rewrite.cli import common
from amp_rewrite.cli.streams import delivered
from amp_rewrite.kernels.kernel_rows import ask_runtime, table_for, to_text
from amp_rewrite.rewriting.report.write_text import write_text


def kernels(
    provider: Annotated[str, typer.Argument(help="Execution provider, or a target's name.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The table to write (.json), for --target.")
    ],
    package: Annotated[
        str | None,
        typer.Option(
            help="Python package with get_library_path() that contains the provider; only for "
            "providers without a target."
        ),
    ] = None,
    quiet: common.Quiet = False,
) -> None:
    """Write a table of the kernels of an ONNX Runtime PROVIDER, for --target."""
    targets.check_table_name(str(output))
    named = targets.provider_named(provider)
    table = table_for(ask_runtime(named, package), named)
    write_text(output, to_text(table).rstrip("\n"))
    out = common.console(quiet=quiet)
    common.say_cpu_provider(provider, out)
    count = sum(map(len, table["kernels"].values()))
    out.print(f"{count} operators of {table['runtime']} -> {delivered(output)}")
