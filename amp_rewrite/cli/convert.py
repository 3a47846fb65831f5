"""`amp-rewrite convert`: rewrite a model file."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from click.exceptions import Exit

from amp_rewrite.base.progress import progress_bar
from amp_rewrite.cli import common
from amp_rewrite.cli.folder import by_model, finish_folder, refuse_for_folder
from amp_rewrite.cli.parameters import CHECKING, OUTPUT, option
from amp_rewrite.cli.rewrite_options import with_rewrite_options
from amp_rewrite.errors import AmpError, OptionError
from amp_rewrite.numerics.convert.file import Asked, FileConversion, convert_file
from amp_rewrite.rewriting.plan.option_words import option_words
from amp_rewrite.rewriting.plan.options import KEEP, RewriteOptions
from amp_rewrite.rewriting.report.gains import sizes_of
from amp_rewrite.rewriting.report.next_steps import (
    Names,
    inlined_conversion,
    longer_search,
    measured_conversion,
    next_steps,
    strict_conversion,
)
from amp_rewrite.rewriting.report.rewrite_report import Report
from amp_rewrite.rewriting.report.write_text import write_text
from amp_rewrite.targets import provider_named

if TYPE_CHECKING:
    from amp_rewrite.numerics.convert.conversion import Conversion

_TAKEN = ("--precision", "--keep-io", "--no-keep-io-types", "--lists", "--allow-op")
_SHORT = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
_STEPS = 3
"""How many next steps are printed; the page has all of them."""


@with_rewrite_options
def convert(
    model: common.FileOrFolder,
    output: Path | None = option(None, "The file to write.", "-o"),
    data: list[Path] | None = option(
        None,
        "Calibrate, verify and, if needed, tune on these data: "
        f"{common.DATA_KINDS} For a folder: MODEL=DATA.",
    ),
    rtol: common.Rtol = None,
    *,
    options: RewriteOptions,
    budget: common.Budget = None,
    verify: common.Verify = False,
    stress: bool | None = option(
        None,
        "Also verify on stress inputs. Default: with --strict.",
        group=CHECKING,
    ),
    provider: common.RunOn = None,
    write_failed: common.WriteFailed = False,
    report: common.ReportFile = None,
    html: common.Page = None,
    annotate: bool = option(
        False,
        "Add type and reason to every node of the result, for viewers such as Netron.",
        group=OUTPUT,
    ),
    opset: common.Opset = common.AUTO,
    replace: bool = option(
        False,
        "For a folder: overwrite existing variants such as onnx/model_fp16.onnx.",
        group=OUTPUT,
    ),
    dry_run: bool = option(False, "Print what would change; write no model.", group=OUTPUT),
    verbose: common.Verbose = False,
    quiet: common.Quiet = False,
) -> None:
    """Convert MODEL to mixed precision.

    OUTPUT of a folder is a new folder: every model is converted, other files are copied.
    With --data, --verify, --stress, --provider or --strict, the result is verified, and written
    only if it passes.
    Exit status: 0 written; 1 verification failed; 3 nothing is left in 16 bits; 4 in doubt, or
    nothing was compared.
    """
    output = _output(model, output, options, dry_run=dry_run, replaces=replace)
    of_one_model = {
        "--provider": provider,
        "--html": html,
        "--budget": budget,
    }
    of_verdict = {
        "--data": data,
        "--rtol": rtol,
        "--verify": verify,
        "--stress": stress,
        "--write-failed": write_failed,
        "--annotate": annotate,
        "--opset": opset not in (common.AUTO, KEEP),
    }
    if model.is_dir():
        refuse_for_folder(model, report, of_one_model)
        if not options.makes_low:
            _refuse_beside(options, of_verdict)
        from amp_rewrite.numerics.folder_commands import (
            convert_folder,  # a model needs nothing of it
        )

        common.announce_time(model.rglob("*.onnx"), runs=bool(data or verify), quiet=quiet)
        with progress_bar("rewriting", quiet=quiet) as progress:
            of_folder = convert_folder(
                model,
                None if dry_run else output,
                options,
                verify=verify,
                stress=stress,
                rtol=rtol,
                write_failed=write_failed,
                annotate=annotate,
                opset=opset,
                replace_forms=replace,
                data=by_model(data or ()),
                progress=progress,
            )
        common.say_cpu(options.target, common.console(quiet=quiet))
        finish_folder(of_folder, report, quiet=quiet, strict=options.strict)
        return
    to_write = None if dry_run else output
    common.check_files([model], data, output=to_write, report=report, page=html)
    if not options.makes_low:
        beside = {**of_one_model, **of_verdict, "--report": report}
        _widen_file(model, options, output, beside, dry_run=dry_run, quiet=quiet)
        return
    lengths = options.lengths
    asked = Asked(
        data=data or (),
        verify=verify,
        stress=stress,
        rtol=rtol,
        seconds=None if budget is None else common.seconds(budget),
        write_failed=write_failed,
        opset=opset,
        provider=None if provider is None else provider_named(provider),
    )
    common.announce_time([model], data, runs=asked.converts, quiet=quiet, budget=budget or "10m")
    with progress_bar("rewriting", quiet=quiet) as progress:
        done = convert_file(model, options, asked, progress)
        is_read = html is not None or report is not None or not quiet
        lines = done.report(lengths) if is_read else None
        written = not dry_run and done.is_written
        if written:
            _save(done, output, progress, annotate=annotate)
        if html is not None and lines is not None:
            progress("writing the page")
            with _tell_written(output, written=written):
                _write_page(html, done, lines, output, written=written)
    if report is not None and lines is not None:
        write_text(report, done.to_json(lines))
    if lines is not None and not quiet:
        sizes = sizes_of(model, done.result.flat, done.result.plan, output if written else None)
        _print_unmet(done, lines, output)
        _print_verdict(done, lines, output, written=written)
        common.say_target(options, lines.target, common.console())
        common.say_cpu_provider(provider, common.console(), target=options.target)
        left = None if done.made is None else done.made.nothing_left
        common.console().print_all(lines.lines(sizes, left, verbose=verbose))
        _print_outcome(done, lines, output, written=written)
        _print_next(lines, done, output, written=written)
    if done.missing is not None:
        raise done.missing
    if not done.holds:
        raise Exit(_status(done, strict=options.strict))


def _status(done: FileConversion, *, strict: bool) -> int:
    """Return the exit status of a conversion that something speaks against."""
    if strict or done.nothing_left:
        return common.NOT_STRICT
    return common.FAILED if done.made is None else done.made.verdict.exit_status


def _output(
    model: Path, output: Path | None, options: RewriteOptions, *, dry_run: bool, replaces: bool
) -> Path:
    """Return where the result goes, or would go: in a folder `MODEL.fp16.onnx`.

    Raises:
        OptionError: Nothing is said of it, and it is to be written; or `--replace` was given, which
            is about a folder of models.
    """
    if output is None and not dry_run:
        remedy = "name the file or the new folder to write, or use --dry-run"
        raise OptionError("missing -o OUTPUT", remedy=remedy)
    if model.is_dir():
        return output or model
    if replaces:
        remedy = "omit it, or name a folder as MODEL"
        raise OptionError("--replace is only for a folder", remedy=remedy)
    name = f"{model.stem}.{_SHORT[options.precision]}.onnx"
    return model.with_name(name) if output is None else common.in_folder(output, name)


@contextmanager
def _tell_written(output: Path, *, written: bool) -> Generator[None]:
    """Say that the model is there if what comes behind it fails."""
    try:
        yield
    except AmpError:
        if written:
            common.error_console().print(common.wrote(output))
        raise


def _save(
    done: FileConversion, output: Path, progress: Callable[..., None], *, annotate: bool
) -> None:
    if annotate:
        done.result.annotate()
    done.save(output, progress)


def _write_page(
    page: Path, done: FileConversion, report: Report, output: Path, *, written: bool
) -> None:
    """Write the page of a conversion; what makes it is loaded for it alone."""
    from amp_rewrite.page.overview import evidence_of
    from amp_rewrite.page.render import write_page

    write_page(page, done.result, report, evidence_of(done, output, written=written))


def _print_verdict(done: FileConversion, report: Report, output: Path, *, written: bool) -> None:
    """Print the answer first: whether the result passed, or how to find out."""
    out = common.console()
    if done.made is not None:
        out.print_judged(done.made.verdict, done.made.verdict.lines())
    elif _as_it_came(done, report):
        return  # the next line says that nothing was converted
    elif not written:
        out.print("Not verified: nothing was written.")
    elif report.near_end:
        command = measured_conversion(report, _names(done, output, written=written))
        out.print(f"Not verified, in doubt: {report.near_end}; with your inputs run `{command}`.")
    else:
        both = f"{shlex.quote(str(done.model))} {shlex.quote(str(output))}"
        out.print(f"Not verified: run `amp-rewrite verify {both}`, or add --data or --verify.")


def _print_unmet(done: FileConversion, report: Report, output: Path) -> None:
    """Print first that verifying ended early, if it did, and the command that goes on."""
    conversion, asked = done.made, done.asked
    ended = None if conversion is None else conversion.verification.unfinished
    if ended is None:
        return
    out, names = common.console(), _names(done, output, written=False)
    step = longer_search(report, names, asked.rtol, asked.budget)
    for line in (ended, f"next: {step.why}", f"  {step.command}"):
        out.print(line)


def _print_outcome(done: FileConversion, report: Report, output: Path, *, written: bool) -> None:
    """Print what the verdict rests on, and what was written."""
    out, conversion = common.console(), done.made
    fails = conversion is not None and not conversion.writable
    if conversion is not None:
        device = conversion.verification.device
        out.print_all((*conversion.verification.notes(), *(device.lines if device else ())))
    if written:
        though = _as_it_came(done, report) if conversion is None else _contradiction(conversion)
        out.print(common.wrote(output, though))
    else:
        note = "; --write-failed writes it anyway" if fails else ""
        out.print(f"nothing was written{note}")


def _as_it_came(done: FileConversion, report: Report) -> str:
    """Return that a model was written unchanged, if it was."""
    changed = done.result.changed or report.opset_raised is not None
    return "" if changed else ", unchanged: nothing was converted"


def _contradiction(conversion: Conversion) -> str:
    """Return what is said of a model that was written though something speaks against it."""
    if not conversion.ok:
        is_wrong = conversion.verdict.status == "failed"
        return ", although it failed" if is_wrong else f", {conversion.verdict.status}"
    return "" if conversion.writable else ", with nothing in 16 bits"


def _names(done: FileConversion, output: Path, *, written: bool) -> Names:
    """Return what the files are called in the commands that are suggested: as they were given."""
    return Names(str(done.model), str(output), tuple(map(str, done.asked.data)), written)


def _print_next(report: Report, done: FileConversion, output: Path, *, written: bool) -> None:
    """Print what to try next: the most useful steps."""
    out = common.console()
    holds, names = None, _names(done, output, written=written)
    if done.made is not None:
        holds = done.made.verdict.decided
    steps = next_steps(report, names, holds)
    if written and done.made is None and _as_it_came(done, report):
        steps = (*inlined_conversion(report, names), strict_conversion(report, names))
    for step in steps[:_STEPS]:
        out.print(f"next: {step.why}")
        out.print(f"  {step.command}")


def _refuse_beside(options: RewriteOptions, beside: Mapping[str, object]) -> None:
    """Refuse what says how to make a model low, or how to judge one."""
    words = [words[0] for words in option_words(options)]
    extra = [word for word in words if word not in _TAKEN]
    extra += [flag for flag, value in beside.items() if value]
    if extra:
        raise OptionError(
            f"{extra[0]} has no effect with --precision float32",
            remedy="omit it, or use --precision float16 or bfloat16",
        )


def _widen_file(
    model: Path,
    options: RewriteOptions,
    output: Path,
    beside: Mapping[str, object],
    *,
    dry_run: bool,
    quiet: bool,
) -> None:
    """Write the float32 form of a model; `beside` is what else the command line gave, by its flag.

    Raises:
        OptionError: Something was given that says how to make a model low, or how to judge one.
        AmpError: The model is wrong, or cannot be written.
    """
    _refuse_beside(options, beside)
    from amp_rewrite.rewriting.widen import widen  # most conversions need nothing of it

    with progress_bar("widening", quiet=quiet) as progress:
        widened = widen(
            model,
            keep_io_types=options.keep_io_types,
            lists=options.lists,
            allow_ops=options.allow_ops,
        )
        if not dry_run:
            widened.save(output, progress=progress)
    out = common.console(quiet=quiet)
    out.print(widened.in_short())
    out.print("nothing was written" if dry_run else common.wrote(output))
