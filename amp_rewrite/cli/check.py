"""`amp-rewrite check`: is a model in 16 bits safe as it is? And of several files, for CI."""

from __future__ import annotations

import shlex
from pathlib import Path

from click.exceptions import Exit

from amp_rewrite.base import arguments
from amp_rewrite.base.progress import progress_bar
from amp_rewrite.cli import common
from amp_rewrite.cli.parameters import CHECKING, argument, option
from amp_rewrite.cli.rewrite_options import with_rewrite_options
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.graph.io.atomic import writing
from amp_rewrite.numerics.model_checks import check_models
from amp_rewrite.numerics.safety_check import check as run_check
from amp_rewrite.rewriting.plan.options import RewriteOptions, option_words
from amp_rewrite.targets import provider_named


@with_rewrite_options
def check(
    models: list[Path] = argument("ONNX models."),
    *,
    options: RewriteOptions,
    data: list[Path] | None = option(
        None,
        f"Run the model on these data: {common.DATA_KINDS} Default: made-up inputs and "
        "stress inputs.",
    ),
    original: Path | None = common.ORIGINAL,
    run: bool = option(True, "Run the model; --no-run applies rules only."),
    stress: bool | None = option(
        None, "Also run stress inputs. Default: without --data.", group=CHECKING
    ),
    provider: str | None = common.PROVIDER,
    report: Path | None = common.REPORT,
    format_: common.Format | None = option(
        None, "For CI: text, json, or github (annotations).", "--format"
    ),
    summary: Path | None = option(
        None, "For CI: append a Markdown table here, for example $GITHUB_STEP_SUMMARY."
    ),
    quiet: bool = common.QUIET,
) -> None:
    """Check whether a 16-bit model is numerically safe.

    Emulates the target's 16-bit arithmetic and compares the outputs with the same model in float32,
    or with --original, then reports what static rules flag.
    Exit status: 0 passed, 1 failed, 4 in doubt (unsafe by the rules alone, for example) or not run.
    For a float32 model, lists what would be unsafe in --precision.
    With several files, --format or --summary, each file gets one line. model.fp16.onnx (or
    model_fp16.onnx, model.bf16.onnx) is compared with model.onnx in the same folder, if that
    exists. Exit status 1: a model failed; 4: none failed, one is in doubt.
    """
    of_run = {"--data": data, "--original": original, "--stress": stress, "--provider": provider}
    if len(models) > 1 or format_ is not None or summary is not None:
        why = "is about one model, without --format and --summary"
        arguments.refuse({**of_run, "--report": report}, why, "omit it")
        common.check_files(models, summary=summary)
        _check_files(models, options, format_ or common.Format.TEXT, summary, run=run)
        return
    [model] = models
    if not run:
        arguments.refuse(of_run, "has no effect with --no-run", "omit one of them")
    common.check_files(models, data, report=report)
    common.announce_time(models, data, runs=run, quiet=quiet)
    with progress_bar("checking", quiet=quiet) as progress:
        safety = run_check(
            model,
            [*data] if data else None,
            options,
            original=original,
            run=run,
            stress=stress,
            providers=() if provider is None else [provider_named(provider)],
            progress=progress,
        )
    common.write_report(report, safety.to_json)
    out = common.console(quiet=quiet)
    common.say_target(options, safety.target, out, provider)
    out.print_judged(safety.verdict, safety.lines())
    if not safety.ok and safety.computes != FLOAT32.name:
        out.print("next: Repair it: compute in float32 what is unsafe.")
        out.print(f"  {_repair(model, data, options)}")
    if not safety.ok:
        raise Exit(safety.verdict.exit_status)


def _repair(model: Path, data: list[Path] | None, options: RewriteOptions) -> str:
    """Return the command that repairs a model."""
    words = ["amp-rewrite", "repair", str(model), "-o", f"{model.stem}.repaired.onnx"]
    words += [word for path in data or () for word in ("--data", str(path))]
    words += [word for option in option_words(options) for word in option]
    return shlex.join(words if data else [*words, "--verify"])


def _check_files(
    models: list[Path],
    options: RewriteOptions,
    format_: common.Format,
    summary: Path | None,
    *,
    run: bool,
) -> None:
    """Print a line for each file."""
    with progress_bar("checking"):
        checks = check_models(models, options, run=run)
    common.print_findings(checks, format_)
    if summary is not None:
        with writing("summary", summary), summary.open("a", encoding="utf-8") as stream:
            stream.write(checks.to_markdown())
    if not checks.ok:
        raise Exit(common.FAILED if checks.failed else common.IN_DOUBT)
