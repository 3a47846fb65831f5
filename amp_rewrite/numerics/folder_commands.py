"""`convert` of a folder: each model in turn, all else as it is; whole, or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from amp_rewrite.base import arguments
from amp_rewrite.base.printable import few
from amp_rewrite.base.progress import silent
from amp_rewrite.errors import AmpError, LoadError, OptionError, SaveError
from amp_rewrite.graph.io.model_files import plain_data_names
from amp_rewrite.graph.io.model_folder import ModelFile, ModelFolder
from amp_rewrite.graph.io.paths import path_text
from amp_rewrite.numerics.browser_config import note_cache_types
from amp_rewrite.numerics.convert.file import Asked, convert_file
from amp_rewrite.numerics.folder_models import FolderModels
from amp_rewrite.numerics.folder_report import FolderReport, ModelEntry, State
from amp_rewrite.numerics.inputs.batches import check_data
from amp_rewrite.numerics.new_folder import NewFolder
from amp_rewrite.rewriting.connected_ends import Ends, mismatch
from amp_rewrite.rewriting.plan.options import (
    AUTO,
    Changes,
    RewriteOptions,
    changed,
    with_option_names,
)
from amp_rewrite.rewriting.report.gains import headline

if TYPE_CHECKING:
    from amp_rewrite.graph.io.model_files import Path as PathLike

    DataPaths = PathLike | Sequence[PathLike]

Progress = Callable[[str], None]


@with_option_names
def convert_folder(
    folder: PathLike,
    output: PathLike | None = None,
    options: RewriteOptions | None = None,
    *,
    verify: bool = False,
    stress: bool | None = None,
    rtol: float | None = None,
    write_failed: bool = False,
    annotate: bool = False,
    opset: str = AUTO,
    replace_forms: bool = False,
    data: Mapping[str, DataPaths] | None = None,
    progress: Progress | None = None,
    **changes: Unpack[Changes],
) -> FolderReport:
    """Convert every model of a folder; copy all else.

    Of models in several forms, such as `model.onnx` and `model_fp16.onnx`, the plain one is
    converted. The results keep their names; in a folder called `onnx`, where transformers.js looks
    for forms, float16 ones are called `model_fp16.onnx`, or `model_q4f16.onnx` if made from
    `model_q4.onnx`, and the plain ones stay beside them. The target of such a folder is webgpu,
    unless the options, or a model, name another one.

    An input and an output that are connected and have two types afterwards are named.

    Args:
        folder: A folder as Optimum, ONNX Runtime GenAI or transformers.js lay it out.
        output: The new folder; it is written if all models pass. None writes nothing.
        options: How to rewrite; a name in them has to fit one model.
        verify: Verify the results on made-up and stress inputs.
        stress: Verify with stress inputs, as for `convert`.
        rtol: The largest error of an output, as for `convert`.
        write_failed: Write the folder even if a model fails.
        annotate: Note in every node what it computes in, and why.
        opset: The opset that models are moved to first: a number, "auto" or "keep".
        replace_forms: Whether results take the place of forms that are there already.
        data: Name of a model, with or without its folder and ".onnx" -> .npz or .csv files, or
            folders of .npz files, with which it is calibrated and verified.
        progress: Called with what begins.
        **changes: Single options by name, as for `rewrite`.

    Raises:
        OptionError: A name in the options or in `data` fits no model, an option is impossible, or a
            form that would be written is there already.
        SaveError: The folder cannot be written.
        LoadError: The folder holds no model, or cannot be read.
    """
    chosen = changed(options, **changes)
    annotate = arguments.switch("annotate", annotate)
    replace_forms = arguments.switch("replace_forms", replace_forms)
    asked = Asked(
        verify=arguments.switch("verify", verify),
        stress=None if stress is None else arguments.switch("stress", stress),
        rtol=None
        if rtol is None
        else arguments.number("rtol", rtol, low=0, expected="a number of at least 0"),
        write_failed=arguments.switch("write_failed", write_failed),
        opset=str(opset),
    )
    folder_models = ModelFolder.read(path_text(folder, LoadError))
    taken = folder_models.convertible()
    what = "a mapping from names of models to data"
    named = {} if data is None else arguments.mapping("data", data, what=what)
    data_of = _data_by_path(folder_models, taken, named)
    if chosen.makes_low:
        asked.check(verifies=asked.converts or chosen.strict or bool(data_of))
    models = FolderModels.read(folder_models, chosen)
    names = {m.name: m.in_precision(chosen.precision) for m in taken}
    if not replace_forms:
        _refuse_overwriting(models.folder, names)
    told = arguments.function("progress", progress) or silent
    models.check_names(taken)
    job = _Job(models, taken, names, chosen, asked, data_of, annotate, told)
    return job.run(None if output is None else path_text(output, SaveError))


def _data_by_path(
    folder: ModelFolder, taken: Sequence[ModelFile], data: Mapping[str, DataPaths]
) -> dict[Path, Sequence[Path]]:
    """Return the data of each model, by the model's path.

    Raises:
        OptionError: A name fits none of the models, or several.
        DataError: Data cannot be read.
    """
    found: dict[Path, Sequence[Path]] = {}
    for name, paths in data.items():
        fitting = [m for m in taken if name in m.called]
        if len(fitting) != 1:
            raise OptionError(
                f"data names {'several models' if fitting else 'no model'} of the folder",
                found=repr(name),
                expected=" or ".join(repr(m.name) for m in fitting or taken),
            )
        found[Path(folder.of(fitting[0].name))] = [*map(Path, arguments.paths("data", paths))]
    for paths in found.values():
        for path in paths:
            check_data(path)
    return found


def _refuse_overwriting(folder: ModelFolder, names: Mapping[str, str]) -> None:
    """Refuse to make a form anew that is there already; `names`: model -> what it is written as.

    Raises:
        OptionError: One is.
    """
    there = {target: of for of, target in names.items() if target != of and target in folder.files}
    if there:
        of = next(iter(there.values()))
        raise OptionError(
            f"what is made of {of} would take the place of a form that is there already",
            where=folder.path,
            found=few([*there], 1),
            remedy="remove it, or replace such forms: --replace, in Python replace_forms=True",
        )


@dataclass(frozen=True)
class _Job:
    """The conversion of one folder.

    Attributes:
        taken: The models that are converted.
        names: File of each of these -> as what it is written.
        data: By path of a model, the data that it is calibrated and verified with.
    """

    models: FolderModels
    taken: Sequence[ModelFile]
    names: Mapping[str, str]
    options: RewriteOptions
    asked: Asked
    data: Mapping[Path, Sequence[Path]]
    annotate: bool
    progress: Progress

    def run(self, target: str | None) -> FolderReport:
        """Convert the models into a new folder, if there is to be one."""
        folder, names = self.models.folder, self.names
        with ExitStack() as stack:
            new = None if target is None else stack.enter_context(NewFolder(target, folder.path))
            replaced = {*names.values()} - {*names}
            files = (m.name for m in folder.models if m.name not in replaced)
            links = self.models.links({f: ModelFile.of(names.get(f, f)) for f in files})
            copied = self._copied_files()
            taken = [] if new is None else [os.path.join(new.path, n) for n in copied]
            stack.enter_context(plain_data_names(taken))
            entries: list[ModelEntry] = []
            ends = {file: facts.ends for file, facts in self.models.known.items()}
            for model in self.taken:
                place = None if new is None else new.place(names[model.name])
                try:
                    entry, ends[model.name] = self._converted(model, place)
                except AmpError as error:
                    entry = ModelEntry(model.name, None, "failed", f"failed: {error}")
                entries.append(entry)
            complete = new is not None and all(entry.output is not None for entry in entries)
            notes: tuple[str, ...] = ()
            if new is not None and complete:
                self.progress("copying other files")
                for name in copied:
                    new.copy(folder.of(name), name)
                results = [(ModelFile.of(names[m.name]), ends[m.name]) for m in self.taken]
                notes = note_cache_types(new.path, results, copied)
                new.commit()
        left = [m.name for m in folder.models if m.name not in names]
        made_of = {form: f"what is made of {file} takes its place" for file, form in names.items()}
        odd = (mismatch(link, ends) for link in links)
        return FolderReport(
            folder.path,
            target,
            tuple(entries),
            {m: made_of.get(m, "another form is converted") for m in left},
            len(set(copied) - {m.name for m in folder.models}),
            len(links),
            tuple(line for line in odd if line is not None),
            complete,
            self.models.target(self.options),
            notes,
        )

    def _converted(self, model: ModelFile, place: str | None) -> tuple[ModelEntry, Ends]:
        """Convert one model; write the result to a place, if there is one.

        Raises:
            AmpError: It cannot be read, converted or written.
        """
        if model.name in self.models.broken:
            raise self.models.broken[model.name]
        facts, target = self.models.known[model.name], self.models.target(self.options)
        path, options = Path(self.models.folder.of(model.name)), facts.fitting(self.options, target)
        self.progress(f"{model.name}: convert")
        convert = self._narrowed if options.makes_low else self._widened
        entry, ends, save = convert(model.name, path, options)
        if place is None or save is None:
            return entry, ends
        save(place)
        return replace(entry, output=self.names[model.name]), ends

    def _narrowed(self, name: str, path: Path, options: RewriteOptions) -> _Converted:
        """Convert a model to 16 bits."""
        asked = replace(self.asked, data=self.data.get(path, ()))
        done = convert_file(path, options, asked, lambda what: self.progress(f"{name}: {what}"))
        report = done.report({})
        result, conversion = done.result, done.made
        if self.annotate:
            result.annotate()
        is_float32 = (
            self.asked.rtol is None
            and done.nothing_left
            and conversion is not None
            and conversion.ok
        )
        holds = done.holds or is_float32
        state: State = "refused" if not holds else "changed" if result.changed else "unchanged"
        record = report.to_dict() if conversion is None else conversion.to_dict(report)
        said = [headline(report.precision, report.summary)]
        if done.missing is not None:
            said = [*done.missing.shortcomings]
        elif conversion is not None and not holds:
            said = [*conversion.verdict.lines()]
        more, unknown = tuple(said[1:]), report.unknown_lengths
        entry = ModelEntry(name, None, state, said[0], more, record, unknown)
        save = done.save if done.is_written or is_float32 else None
        return entry, Ends.of(result.flat, result.plan), save

    def _widened(self, name: str, path: Path, options: RewriteOptions) -> _Converted:
        """Convert a model to float32."""
        from amp_rewrite.rewriting.widen import widen  # most conversions need nothing of it

        widened = widen(path, keep_io_types=options.keep_io_types)
        state: State = "changed" if widened.changed else "unchanged"
        types = {dtype.name: count for dtype, count in widened.types.items()}
        entry = ModelEntry(name, None, state, widened.to_text(), report={"widened": types})
        return entry, Ends.of(widened.flat, widened.plan), widened.save

    def _copied_files(self) -> tuple[str, ...]:
        """Return which files are copied as they are.

        Not those that a result takes the place of, nor data files that no copied model reads.
        """
        folder, written = self.models.folder, {*self.names.values()}
        gone = [m for m in folder.models if m.name in written]
        stay = [m for m in folder.models if m.name not in written]
        unread = self.models.data_of(gone) - self.models.data_of(stay)
        if any(m.name in self.models.broken for m in stay):  # nobody knows what that one reads
            unread = frozenset()
        return tuple(
            name
            for name in folder.files
            if name not in written and os.path.realpath(folder.of(name)) not in unread
        )


_Converted = tuple[ModelEntry, Ends, Callable[[str], object] | None]
"""The outcome for a model, its inputs and outputs afterwards, and what writes it."""
