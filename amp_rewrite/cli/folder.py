"""`convert` of a folder: refusals, output and exit status."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from click.exceptions import Exit

from amp_rewrite.base import arguments
from amp_rewrite.cli import common
from amp_rewrite.errors import OptionError

if TYPE_CHECKING:
    from amp_rewrite.numerics.folder_report import FolderReport


_SHOWN = 4
"""How many models a suggested command names."""


def refuse_for_folder(
    folder: Path, report: Path | None, of_one_model: Mapping[str, object]
) -> None:
    """Refuse a report in the folder, and options about one model, by their flags."""
    why, remedy = f"is about one model, and {folder} is a folder", "or name a model in the folder"
    arguments.refuse(of_one_model, why, f"omit it, {remedy}")
    if report is not None and report.resolve().is_relative_to(folder.resolve()):
        raise OptionError("the report would lie in the folder that is read", where=report)


def by_model(folder: Path, data: Iterable[Path]) -> dict[str, list[Path]]:
    """Return the data of models by their names, from words such as "encoder=samples/"."""
    named: dict[str, list[Path]] = {}
    for word in map(str, data):
        name, is_named, path = word.partition("=")
        if not is_named:
            models = [file.stem for file in sorted(folder.rglob("*.onnx"))]
            raise OptionError(
                "--data of a folder does not say for which of its models",
                found=word,
                expected=" or ".join(map(repr, models[:_SHOWN])),
                remedy=f"write --data MODEL={word}",
            )
        named.setdefault(name, []).append(Path(path))
    return named


def _next(done: FolderReport) -> Iterator[str]:
    """Yield what to do next, and the command for it."""
    made = [model.output for model in done.models if model.output and model.state == "changed"]
    if done.written and made and done.output is not None:
        files = [str(Path(done.output, name)) for name in made[:_SHOWN]]
        yield "next: Check the converted models." + ("" if len(made) <= _SHOWN else " The first:")
        yield f"  {shlex.join(['amp-rewrite', 'check', *files])}"
    elif done.bad:
        model = Path(done.folder, done.bad[0].file)
        yield f"next: Convert {model} alone, with your inputs (--data) if you have some."
        output = f"{model.stem}.converted.onnx"
        words = ["amp-rewrite", "convert", str(model), "-o", output, "--verify"]
        yield f"  {shlex.join(words)}"


def finish_folder(
    folder_report: FolderReport, report: Path | None, *, quiet: bool, strict: bool
) -> None:
    """Print the report of a folder, write it, and leave with the worst status."""
    common.write_report(report, folder_report.to_json)
    out = common.console(quiet=quiet)
    for line in folder_report.lines():
        out.print(line)
    for line in _next(folder_report):
        out.print(line)
    if quiet:
        for model in folder_report.failed:
            common.error_console().print(f"amp-rewrite: {model.file}: {model.said}")
    if not folder_report.ok:
        is_refused = strict and not folder_report.failed
        raise Exit(common.NOT_STRICT if is_refused else folder_report.exit_status)
