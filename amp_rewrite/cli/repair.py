"""`amp-rewrite repair`: raise to float32 what is dangerous in a model in 16 bits."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import cast, get_args

from click.exceptions import Exit

from amp_rewrite.base import arguments
from amp_rewrite.base.progress import progress_bar
from amp_rewrite.cli import common
from amp_rewrite.cli.parameters import argument, option
from amp_rewrite.cli.rewrite_options import with_rewrite_options
from amp_rewrite.errors import VerdictError
from amp_rewrite.numerics.repair import KeepIO
from amp_rewrite.numerics.repair import repair as run_repair
from amp_rewrite.numerics.repair_report import Repair
from amp_rewrite.rewriting.plan.options import RewriteOptions, Weights


@with_rewrite_options
def repair(
    model: Path = argument("ONNX model in 16 bits."),
    *,
    options: RewriteOptions,
    output: Path = option(..., "The file to write.", "-o"),
    data: list[Path] | None = option(
        None,
        "Raise what overflows on these data, verify, and raise more until the model "
        f"passes: {common.DATA_KINDS}",
    ),
    original: Path | None = common.ORIGINAL,
    keep_io: str = option(
        "given",
        "Types of inputs and outputs. given: unchanged; float32: 16-bit ones become float32.",
        choices=get_args(KeepIO),
    ),
    weights: str = option(
        "cast",
        "Weights of raised nodes. cast: keep the 16-bit weights and add Casts; convert:"
        " store them as float32.",
        choices=get_args(Weights),
    ),
    rtol: float | None = common.RTOL,
    budget: str | None = common.BUDGET,
    verify: bool = common.VERIFY,
    write_failed: bool = common.WRITE_FAILED,
    report: Path | None = common.REPORT,
    quiet: bool = common.QUIET,
) -> None:
    """Repair a 16-bit model: raise to float32 only what is unsafe.

    Everything else stays byte for byte. With --data or --verify, the result is emulated, compared
    with the same model in float32, or with --original, and written only if it passes. A file that
    ONNX Runtime cannot load is not written.
    Exit status: 0 written; 1 failed; 3 something unsafe is left; 4 in doubt.
    """
    runs = bool(data) or verify
    if not runs:
        unused = {"--rtol": rtol, "--budget": budget, "--original": original}
        arguments.refuse(unused, "has no effect without verification", "add --data or --verify")
    output = common.in_folder(output, model.name)
    common.check_files([model], data, output=output, report=report)
    common.announce_time([model], data, runs=runs, quiet=quiet, budget=budget or "10m")
    with progress_bar("repairing", quiet=quiet) as progress:
        repaired = run_repair(
            model,
            [*data] if data else None,
            options,
            original=original,
            keep_io=cast("KeepIO", keep_io),
            weights=cast("Weights", weights),
            verify=verify,
            rtol=rtol,
            budget=common.seconds(budget or "10m"),
            progress=progress,
        )
        refused: VerdictError | None = None
        written = repaired.passes or write_failed
        if written:
            try:
                repaired.save(output, write_failed=write_failed, progress=progress)
            except VerdictError as error:
                refused, written = error, False
    common.write_report(report, repaired.to_json)
    if not quiet:
        common.say_target(options, repaired.target, common.console())
        _print(repaired, output, refused, written=written)
    if refused is not None and quiet:
        common.error_console().print(f"amp-rewrite: {refused}")
    if refused is not None or not repaired.ok:
        raise Exit(_status(repaired, refused))


def _status(repaired: Repair, refused: VerdictError | None) -> int:
    """Return the exit status: that of the verdict, or that it is unsafe by the rules."""
    verdict = repaired.verdict
    if refused is not None or repaired.left or verdict is None or verdict.ok:
        return common.NOT_STRICT
    return verdict.exit_status


def _print(repaired: Repair, output: Path, refused: VerdictError | None, *, written: bool) -> None:
    out = common.console()
    if refused is not None:
        out.print(f"FAILED: ONNX Runtime does not load the result: {refused.what}")
    out.print_all(repaired.lines())
    if written:
        note = "" if repaired.changed or repaired.raised.flat.mended.words() else ", a copy"
        out.print(common.wrote(output, note))
        if repaired.verification is None:
            target = f" --target {repaired.target}" if repaired.target else ""
            out.print("next: Check the result on your own inputs.")
            out.print(f"  amp-rewrite check {shlex.quote(str(output))} --data inputs.npz{target}")
    else:
        out.print("nothing was written; --write-failed writes it anyway")
