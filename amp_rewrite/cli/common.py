"""Parts that all commands share: consoles, exit statuses and the options of a rewrite."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from amp_rewrite.base.printable import plain_line
from amp_rewrite.cli.parameters import CHECKING, OUTPUT, TYPES, NewFolder, option
from amp_rewrite.errors import OptionError, SaveError

if TYPE_CHECKING:
    from amp_rewrite.numerics.compare.verdict import Verdict
    from amp_rewrite.rewriting.plan.options import RewriteOptions

DONE, FAILED, WRONG_USAGE, NOT_STRICT, IN_DOUBT = 0, 1, 2, 3, 4
"""Exit statuses; docs/mixed_precision.md lists them for users. NOT_STRICT: --strict was not met, or
nothing 16-bit is left to write. IN_DOUBT: the rounded weights alone are as far off as the model."""

INTERRUPTED = 130
"""The exit status after Ctrl-C, as shells have it: 128 + SIGINT."""


class PlainConsole(NamedTuple):
    """Prints lines of text; names in them never control a terminal."""

    quiet: bool = False
    stderr: bool = False

    def print(self, line: str = "", *, style: str | None = None) -> None:
        """Print a line, on a terminal in a color."""
        if not self.quiet:
            color = None if os.environ.get("NO_COLOR") else style
            click.secho(plain_line(line), fg=color, err=self.stderr)

    def print_all(self, lines: Iterable[str]) -> None:
        """Print lines."""
        for line in lines:
            self.print(line)

    def print_judged(self, verdict: Verdict, lines: Iterable[str]) -> None:
        """Print lines, the first in the color of a verdict."""
        style = {"passed": "green", "failed": "red"}.get(verdict.status, "yellow")
        for number, line in enumerate(lines):
            self.print(line, style=None if number else style)


console = PlainConsole
"""Returns the console for results; it prints nothing if `quiet`."""

error_console = partial(PlainConsole, stderr=True)
"""Returns the console for errors, warnings and progress."""


def say_target(options: RewriteOptions, taken: str, out: PlainConsole, *others: str | None) -> None:
    """Say which target was taken where the model named it, and what "cpu" means."""
    from amp_rewrite import targets

    if options.target is None and taken != targets.DEFAULT:
        out.print(f"target {taken}: the model says that it was made for it (or name --target)")
    say_cpu(out, options.target, *others)


def say_cpu(out: PlainConsole, *names: str | None) -> None:
    """Say once what a target or provider that is called "cpu" stands for."""
    from amp_rewrite import targets

    note = next(filter(None, map(targets.which_cpu, names)), None)
    if note is not None:
        out.print(note)


def in_flags(text: str) -> str:
    """Return an error in which options have the names that they have on the command line."""
    from amp_rewrite.rewriting.plan.options import COMMAND_LINE

    for each in COMMAND_LINE:
        text = re.sub(rf"\b{each.name}='([^']*)'", rf"{each.flag} \1", text)
        text = re.sub(rf"\b{each.name}=(\w+)", rf"{each.flag} (\1)", text)
        # A name that is a word of English too is one where it is what the error is about.
        place = r"(?<![-\w'.])" if "_" in each.name else "^"
        text = re.sub(rf"{place}{each.name}\b(?!')(?! of)", each.flag, text)
    return text


_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(text: str) -> float:
    """Return the seconds of "90", "90s", "10m" or "1.5h"."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip().lower())
    if match is None or float(match[1]) <= 0:
        raise click.BadParameter(f"{text!r} is not a duration; write 90s, 10m or 1h")
    return float(match[1]) * _SECONDS[match[2]]


DATA_KINDS = "an .npz file (one batch), a .csv file, or a folder of .npz files."
"""The values of `--data`, in every command that reads batches."""

DATA_HELP = DATA_KINDS.capitalize()

DATA = option(..., DATA_HELP)
LIST_FILE = option(..., "The op list to write, for convert --lists.", "--output", "-o")
RTOL = option(None, "Largest allowed error relative to the output's peak. Default: as for verify.")
BUDGET = option(None, "Time for all checks: 90s, 10m, 1h. Default: 10m.", group=CHECKING)
VERIFY = option(
    False, "Verify, and write only what passes; without --data, on made-up inputs.", group=CHECKING
)
ORIGINAL = option(
    None,
    "The float32 original, to compare with. Default: MODEL computed in float32.",
    group=CHECKING,
)
PROVIDER = option(
    None,
    "Also test on this execution provider (or target); outputs must pass too.",
    group=CHECKING,
)
INPUT_RANGE = option(
    None, "NAME=LOW:HIGH: the range of an input's values; made-up inputs are in it.", group=CHECKING
)
WRITE_FAILED = option(False, "Write the model even if it fails.", group=CHECKING)
REPORT = option(None, "Write a JSON report here.", group=OUTPUT)
QUIET = option(False, "Print errors only.", "--quiet", "-q", group=OUTPUT)
OPSET = option(
    "auto",
    "Opset to convert to first: a number, auto (only if bfloat16 gains) or keep. The float32 "
    "outputs must stay the same.",
    group=TYPES,
)


def check_files(
    models: Iterable[Path], data: Iterable[Path] | None = None, **written: Path | None
) -> None:
    """Refuse, before the work, files that cannot be read or written; make missing folders.

    `written` are the outputs by their names in messages; None for one that is not written.
    """
    from amp_rewrite.graph.io.model_files import check_writable, refuse_same  # help needs neither

    inputs = [*models]
    read = _files_of(data) if data else []
    outputs = {name: path for name, path in written.items() if path is not None}
    for name, path in outputs.items():
        if name == "op_list" and path.suffix == ".onnx":
            raise OptionError("an op list is written, no model", where=path, expected="NAME.yaml")
        try:
            refuse_same(str(path), map(str, inputs), "the output is the input")
        except SaveError as error:
            if name == "output":
                raise
            raise OptionError(f"the {name} would overwrite a model", where=path) from error
        refuse_same(str(path), read, "the output is a file of the data")
        if name == "output" and path.suffix in (".npz", ".csv", ".yaml", ".json", ".html"):
            raise OptionError("a model is written", where=path, expected="NAME.onnx")
    if len({path.resolve() for path in outputs.values()}) < len(outputs):
        found = ", ".join(map(str, outputs.values()))
        raise OptionError("two outputs are one file", found=found, remedy="name different files")
    for path in outputs.values():
        make_folder(path.parent)
        check_writable(path)


def _files_of(data: Iterable[Path]) -> list[str]:
    """Return the files of data, having read the first ones."""
    from amp_rewrite.numerics.inputs.batches import check_data  # most conversions have none

    return [str(file) for source in data for file in check_data(source)]


_LONG = 10.0
"""Seconds from which on a command says first that it takes time."""

_WRITING, _RUNNING, _BATCH = 2e-9, 3e-8, 1e-8
"""About how many seconds a byte of a model takes to write, to verify, and on each batch."""


def announce_time(
    models: Iterable[Path],
    data: Iterable[Path] | None = None,
    *,
    quiet: bool,
    runs: bool = True,
    budget: str | None = None,
) -> None:
    """Say that a command takes more than ten seconds, if the sizes of its files suggest that.

    `runs` says whether the models run on the data, `budget` is the limit of the time.
    """
    files = [file for model in models for file in (model, *model.parent.glob(f"{model.name}*data"))]
    size = sum(file.stat().st_size for file in files if file.is_file())
    batches = len(_files_of(data or ())) if runs else 0
    seconds = size * (_WRITING + (_RUNNING + batches * _BATCH if runs else 0.0))
    if seconds < _LONG or quiet:
        return
    from amp_rewrite.base.printable import counted, in_bytes

    on = f" on {counted(batches, 'batch')}" if batches else ""
    limit = f"; at most {budget} (--budget)" if budget and runs else ""
    error_console().print(f"More than ten seconds for {in_bytes(size)} of model{on}{limit}")


def in_folder(output: Path, name: str) -> Path:
    """Return the file that an output means: in a folder, one that is called `name`."""
    is_folder = output.is_dir() or isinstance(output, NewFolder)
    return Path(output) / name if is_folder else output


def wrote(output: Path, note: str = "") -> str:
    """Return that a model was written, with the file of its weights if it has one."""
    from amp_rewrite.graph.io.model_files import data_files

    beside = " and ".join(map(os.path.basename, data_files(output)))
    with_data = f" with its weights in {beside} (keep both together)" if beside else ""
    return f"wrote {output}{with_data}{note}"


def make_folder(folder: Path) -> None:
    """Make a folder for an output, if it is missing."""
    from amp_rewrite.graph.io.atomic import writing

    with writing("folder", folder):
        folder.mkdir(parents=True, exist_ok=True)


def write_report(path: Path | None, text: Callable[[], str]) -> None:
    """Write a report, if a path was given."""
    if path is not None:
        from amp_rewrite.rewriting.report.write_text import write_text

        write_text(path, text())


class Format(StrEnum):
    """How a CI check prints its findings."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"


def print_findings(findings: Any, format_: Format) -> None:
    """Print what a CI check found in a format: its `to_text()`, `to_json()` or `to_github()`."""
    text: str = getattr(findings, f"to_{format_}")()
    if text:
        click.echo(text)
