"""`amp-rewrite convert`: rewrite a model file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from click.exceptions import Exit

from amp_rewrite.base import arguments
from amp_rewrite.base.progress import progress_bar
from amp_rewrite.cli import common
from amp_rewrite.cli.common import PlainConsole
from amp_rewrite.cli.folder import by_model, finish_folder, refuse_for_folder
from amp_rewrite.cli.parameters import CHECKING, OUTPUT, argument, option
from amp_rewrite.cli.rewrite_options import with_rewrite_options
from amp_rewrite.errors import AmpError, OptionError
from amp_rewrite.numerics.convert.file import Asked, FileConversion, convert_file
from amp_rewrite.rewriting.plan.options import AUTO, KEEP, RewriteOptions, option_words
from amp_rewrite.rewriting.report.gains import sizes_of
from amp_rewrite.rewriting.report.next_steps import Names, next_steps
from amp_rewrite.rewriting.report.rewrite_report import Report
from amp_rewrite.targets import provider_named

_TAKEN = ("--precision", "--keep-io", "--no-keep-io-types", "--lists", "--allow-op")
_SHORT = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
_STEPS = 3
"""How many next steps are printed; the page has all of them."""


@with_rewrite_options
def convert(
    model: Path = argument("ONNX model, or a folder of models."),
    output: Path | None = option(None, "The file to write.", "-o"),
    data: list[Path] | None = option(
        None,
        "Calibrate, verify and, if needed, tune on these data: "
        f"{common.DATA_KINDS} For a folder: MODEL=DATA.",
    ),
    rtol: float | None = common.RTOL,
    *,
    options: RewriteOptions,
    budget: str | None = common.BUDGET,
    verify: bool = common.VERIFY,
    stress: bool | None = option(
        None,
        "Also verify on stress inputs. Default: with --strict.",
        group=CHECKING,
    ),
    provider: str | None = common.PROVIDER,
    write_failed: bool = common.WRITE_FAILED,
    report: Path | None = common.REPORT,
    html: Path | None = option(None, "Write a report page for a browser.", group=OUTPUT),
    annotate: bool = option(
        False,
        "Add type and reason to every node of the result, for viewers such as Netron.",
        group=OUTPUT,
    ),
    opset: str = common.OPSET,
    replace: bool = option(
        False,
        "For a folder: overwrite existing variants such as onnx/model_fp16.onnx.",
        group=OUTPUT,
    ),
    dry_run: bool = option(False, "Print what would change; write no model.", group=OUTPUT),
    verbose: bool = option(
        False, "Print every detail: casts and constants.", "--verbose", "-v", group=OUTPUT
    ),
    quiet: bool = common.QUIET,
) -> None:
    """Convert MODEL to mixed precision.

    With --precision float32, MODEL becomes a float32 model again.
    For a folder, --output names a new folder: every model is converted, other files are copied.
    With --data, --verify, --stress, --provider or --strict, the result is verified, and written
    only if it passes.
    Exit status: 0 written; 1 verification failed; 3 nothing is left in 16 bits; 4 in doubt, or
    nothing was compared.
    """
    output = _output(model, output, options, dry_run=dry_run, replaces=replace)
    of_one_model = {"--provider": provider, "--html": html, "--budget": budget}
    of_verdict = {
        "--data": data,
        "--rtol": rtol,
        "--verify": verify,
        "--stress": stress,
        "--write-failed": write_failed,
        "--annotate": annotate,
        "--opset": opset not in (AUTO, KEEP),
    }
    if model.is_dir():
        refuse_for_folder(model, report, of_one_model)
        if not options.makes_low:
            _refuse_beside(options, of_verdict)
        # A single model needs nothing of it.
        from amp_rewrite.numerics.folder_commands import convert_folder

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
                data=by_model(model, data or ()),
                progress=progress,
            )
        common.say_cpu(common.console(quiet=quiet), options.target)
        finish_folder(of_folder, report, quiet=quiet, strict=options.strict)
        return
    to_write = None if dry_run else output
    common.check_files([model], data, output=to_write, report=report, page=html)
    if not options.makes_low:
        beside = {**of_one_model, **of_verdict, "--report": report}
        _widen_file(model, options, output, beside, dry_run=dry_run, quiet=quiet)
        return
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
        written = not dry_run and done.is_written
        outcome = _Outcome(done, options, output, written)
        if written:
            done.save(output, progress, annotate=annotate)
        if html is not None:
            progress("writing the page")
            outcome.write_page(html)
    common.write_report(report, lambda: done.to_json(outcome.report))
    if not quiet:
        outcome.print(provider, verbose=verbose)
    if done.missing is not None:
        raise done.missing
    if not done.holds:
        raise Exit(_status(done, strict=options.strict))


def _status(done: FileConversion, *, strict: bool) -> int:
    """Return the exit status of a conversion that failed or is in doubt."""
    if strict or done.nothing_left:
        return common.NOT_STRICT
    return common.FAILED if done.made is None else done.made.verdict.exit_status


def _output(
    model: Path, output: Path | None, options: RewriteOptions, *, dry_run: bool, replaces: bool
) -> Path:
    """Return the file or folder to write: in a folder `MODEL.fp16.onnx`."""
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


@dataclass(frozen=True)
class _Outcome:
    """A conversion as it is printed."""

    done: FileConversion
    options: RewriteOptions
    output: Path
    written: bool

    @cached_property
    def report(self) -> Report:
        """The report, which is made only if something shows it."""
        return self.done.report(self.options.lengths)

    def write_page(self, page: Path) -> None:
        """Write the report page; if that fails, say that the model is there."""
        from amp_rewrite.page.overview import evidence_of
        from amp_rewrite.page.render import write_page

        evidence = evidence_of(self.done, self.output, written=self.written)
        try:
            write_page(page, self.done.result, self.report, evidence)
        except AmpError:
            if self.written:
                common.error_console().print(common.wrote(self.output))
            raise

    def print(self, provider: str | None, *, verbose: bool) -> None:
        """Print the verdict, the report, what was written and what to do next."""
        out, done = common.console(), self.done
        self._print_verdict(out)
        common.say_target(self.options, self.report.target, out, provider)
        written = self.output if self.written else None
        sizes = sizes_of(done.model, done.result.flat, done.result.plan, written)
        is_told = done.made is not None and done.made.nothing_left is not None
        out.print_all(self.report.lines(sizes, headed=not is_told, verbose=verbose))
        self._print_file(out)
        self._print_next(out)

    def _print_verdict(self, out: PlainConsole) -> None:
        """Print whether the result passed, or how to find out."""
        made = self.done.made
        if made is not None:
            out.print_judged(made.verdict, made.verdict.lines())
        elif self.report.near_end:
            why = self.report.near_end
            out.print(f"Not verified, in doubt: {why}; --data measures it on your inputs")
        elif self.report.summary.nodes_converted:
            out.print("Not verified: nothing was run, so the accuracy is unknown")

    def _print_file(self, out: PlainConsole) -> None:
        """Print what the verdict is based on, and what was written."""
        made, note = self.done.made, ""
        if made is not None:
            device = made.verification.device
            out.print_all((*made.verification.notes(), *(device.lines if device else ())))
        if not self.written:
            fails = made is not None and not made.ok
            insist = "; --write-failed writes it anyway" if fails else ""
            out.print(f"nothing was written{insist}")
            return
        if made is None:
            note = ", unchanged: nothing was converted" if self._is_unchanged else ""
        elif not made.ok:
            status = made.verdict.status
            note = ", although it failed" if status == "failed" else f", {status}"
        out.print(common.wrote(self.output, note))

    def _print_next(self, out: PlainConsole) -> None:
        """Print what to try next: the most useful steps."""
        made = self.done.made
        steps = next_steps(self.report, self._names, None if made is None else made.verdict.decided)
        for step in steps[:_STEPS]:
            out.print_all((f"next: {step.why}", f"  {step.command}"))

    @property
    def _is_unchanged(self) -> bool:
        return not (self.done.result.changed or self.report.opset_raised is not None)

    @property
    def _names(self) -> Names:
        """The files as they were given, for the commands that are suggested."""
        data = tuple(map(str, self.done.asked.data))
        return Names(
            str(self.done.model), str(self.output), data, self.written, self.done.asked.rtol
        )


def _refuse_beside(options: RewriteOptions, beside: Mapping[str, object]) -> None:
    """Refuse options about 16-bit types and about verdicts."""
    given = {words[0]: words for words in option_words(options) if words[0] not in _TAKEN}
    remedy = "omit it, or use --precision float16 or bfloat16"
    arguments.refuse({**given, **beside}, "has no effect with --precision float32", remedy)


def _widen_file(
    model: Path,
    options: RewriteOptions,
    output: Path,
    beside: Mapping[str, object],
    *,
    dry_run: bool,
    quiet: bool,
) -> None:
    """Write the float32 form of a model; `beside` are other options that were given, by flag."""
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
    out.print(widened.to_text())
    out.print("nothing was written" if dry_run else common.wrote(output))
