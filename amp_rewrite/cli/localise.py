"""`amp-rewrite localise`: which node spoils a rewritten model."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated

from click.exceptions import Exit

from amp_rewrite.base.printable import counted, percent
from amp_rewrite.base.progress import progress_bar
from amp_rewrite.cli import common
from amp_rewrite.cli.parameters import Argument, Option
from amp_rewrite.cli.rewrite_options import with_rewrite_options
from amp_rewrite.numerics.compare.made_up_inputs import make_inputs
from amp_rewrite.numerics.search.localisation import Localisation, NodeError
from amp_rewrite.numerics.search.localise import localise as run
from amp_rewrite.rewriting.plan.options import RewriteOptions
from amp_rewrite.rewriting.report.write_text import write_text


@with_rewrite_options
def localise(
    original: Annotated[Path, Argument(help="The float32 ONNX model.")],
    data: Annotated[
        list[Path] | None,
        Option(help=f"{common.DATA_KINDS.capitalize()} Default: made-up inputs."),
    ] = None,
    rewritten: Annotated[
        Path | None,
        Argument(
            help="The converted model; if omitted, ORIGINAL is converted with the given options."
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        Option(help="Relative error from which a value counts as wrong. Default: from the type."),
    ] = None,
    budget: Annotated[str, Option(help="Time for testing single nodes: 90s, 10m, 1h.")] = "60s",
    top: Annotated[int, Option(help="Nodes of the ranking to print.", min=0)] = 10,
    *,
    options: RewriteOptions,
    report: common.ReportFile = None,
    quiet: common.Quiet = False,
) -> None:
    """Find the node where the error starts, and the node that matters most.

    Exit status 1: an output is wrong, or an infinite value was absorbed.
    """
    limit = common.seconds(budget)
    models = [original] if rewritten is None else [original, rewritten]
    common.check_files(models, data, report=report)
    made_up = () if data else make_inputs(original, ranges=options.ranges).batches
    with progress_bar("trying nodes alone", quiet=quiet) as progress:
        localisation = run(
            original,
            rewritten,
            [*data] if data else made_up,
            options,
            tolerance=tolerance,
            budget=limit,
            progress=progress,
        )
    if report is not None:
        write_text(report, json.dumps(localisation.to_dict(), indent=1))
    if not quiet:
        common.say_target(options, localisation.target, common.console())
        _print(localisation, top, made_up=not data)
    if not localisation.holds:
        raise Exit(common.FAILED)


def _print(localisation: Localisation, top: int, *, made_up: bool) -> None:
    out = common.console()
    if made_up:
        out.print("These inputs are made up; use --data for real ones.")
    for name, distance in localisation.outputs.items():
        verdict = "ok" if distance <= localisation.tolerance else "FAILED"
        out.print(
            f"output {name}: error {percent(distance)} of its size, at most "
            f"{percent(localisation.tolerance)}: {verdict}"
        )
    if localisation.absorbed:
        out.print(
            f"{counted(len(localisation.absorbed), 'node')} overflowed although every output is "
            f"finite; first {localisation.absorbed[0]}",
        )
    if localisation.first is None and not localisation.holds:
        out.print("no 16-bit node is wrong by itself: float32 nodes magnify their input errors")
    if localisation.first is not None:
        out.print(f"the error starts at: {_line(localisation.first)}")
    if localisation.most is not None:
        out.print(f"largest contribution: {_line(localisation.most)}")
    for rank, error in enumerate(localisation.ranking[:top], 1):
        out.print(f"{rank:4}. {_line(error)}")


def _line(error: NodeError) -> str:
    alone = f"alone it changes the outputs by {percent(error.contribution)} of their size"
    if math.isnan(error.contribution):
        alone = "not tried alone: the budget ended first"
    own = f"error {percent(error.distance)} of its size"
    if math.isnan(error.distance):
        own = "its own error was not measured"
    return f"{error.node} ({error.op}): {own}; {alone}"
