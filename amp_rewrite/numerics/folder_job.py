"""The models of a folder in turn; the folder appears whole, or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from amp_rewrite.base import arguments
from amp_rewrite.errors import AmpError, SaveError
from amp_rewrite.graph.io.model_files import plain_data_names
from amp_rewrite.graph.io.model_folder import ModelFile
from amp_rewrite.numerics.browser_config import note_cache_types
from amp_rewrite.numerics.folder_models import FolderModels
from amp_rewrite.numerics.folder_report import FolderReport, ModelEntry, State
from amp_rewrite.rewriting.connected_ends import Connection, Ends, mismatch
from amp_rewrite.rewriting.plan.options import RewriteOptions

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Done:
    """The outcome for one model.

    Attributes:
        state: How it ended.
        said: That in one line.
        lines: More of it.
        report: The same as JSON has it.
        ends: Its inputs and outputs afterwards.
        save: Writes the result; None if it is not to be written.
    """

    state: State
    said: str
    lines: tuple[str, ...]
    report: Mapping[str, Any]
    ends: Ends
    save: Callable[[str], object] | None = None


One = Callable[[Path, RewriteOptions, Progress], Done]
"""The work on one model, given its file and the options that fit it."""


@dataclass(frozen=True)
class FolderJob:
    """The conversion of one folder.

    Attributes:
        models: What is known of the models.
        taken: Those that something is done with.
        options: As they were given.
        one: What is done with each.
        told: Called with what begins, if anything is.
    """

    models: FolderModels
    taken: Sequence[ModelFile]
    options: RewriteOptions
    one: One
    told: Progress | None

    def __post_init__(self) -> None:
        """Refuse names in the options that fit no model.

        Raises:
            OptionError: One is such, or `progress` cannot be called.
        """
        _ = arguments.function("progress", self.told)
        self.models.check_names(self.taken)

    def progress(self, what: str) -> None:
        """Tell what begins."""
        if self.told is not None:
            self.told(what)

    def run(
        self,
        names: Mapping[str, str],
        target: str | None = None,
    ) -> FolderReport:
        """Do it.

        Args:
            names: File of each taken model -> as what it is written.
            target: The folder to write; None for none.
        """
        folder = self.models.folder
        with ExitStack() as stack:
            new = None if target is None else stack.enter_context(NewFolder(target, folder.path))
            links = self._links(names)
            copied = self._copied_files(names)
            taken = [] if new is None else [os.path.join(new.path, n) for n in copied]
            stack.enter_context(plain_data_names(taken))
            entries: list[ModelEntry] = []
            ends = {file: facts.ends for file, facts in self.models.known.items()}
            for model in self.taken:
                place = None if new is None else new.place(names[model.name])
                entry, after = self._entry(model, names[model.name], place)
                entries.append(entry)
                if after is not None:
                    ends[model.name] = after
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
        target_taken = self.models.target(self.options)
        return FolderReport(
            folder.path,
            target,
            tuple(entries),
            {m: made_of.get(m, "another form is converted") for m in left},
            len(set(copied) - {m.name for m in folder.models}),
            len(links),
            tuple(line for line in odd if line is not None),
            complete,
            target_taken,
            notes,
        )

    def _entry(
        self, model: ModelFile, name: str, place: str | None
    ) -> tuple[ModelEntry, Ends | None]:
        """Do it with one model; write the result to a place, if there is one."""
        path = Path(self.models.folder.of(model.name))

        def progress(what: str) -> None:
            self.progress(f"{model.name}: {what}")

        progress("convert")
        try:
            if model.name in self.models.broken:
                raise self.models.broken[model.name]
            facts, target = self.models.known[model.name], self.models.target(self.options)
            done = self.one(path, facts.fitting(self.options, target), progress)
            written = place is not None and done.save is not None
            if place is not None and done.save is not None:
                done.save(place)
        except AmpError as error:
            return ModelEntry(model.name, None, "failed", f"failed: {error}"), None
        output = name if written else None
        entry = ModelEntry(model.name, output, done.state, done.said, done.lines, done.report)
        return entry, done.ends

    def _links(self, names: Mapping[str, str]) -> tuple[Connection, ...]:
        """Return what is connected among the models that the folder has afterwards."""
        replaced = {*names.values()} - {*names}
        written = {
            m.name: ModelFile.of(names.get(m.name, m.name))
            for m in self.models.folder.models
            if m.name not in replaced
        }
        return self.models.links(written)

    def _copied_files(self, names: Mapping[str, str]) -> tuple[str, ...]:
        """Return which files are copied as they are.

        Not those that a result takes the place of, nor data files that no copied model reads.
        """
        folder, written = self.models.folder, {*names.values()}
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


class NewFolder:
    """A folder that is being written beside its place, under a hidden temporary name.

    Attributes:
        path: Where to write.
    """

    def __init__(self, target: str, source: str) -> None:
        """Create the temporary folder of a target, which may exist if it is empty.

        Raises:
            SaveError: The target exists, lies in the source, or cannot be made.
        """
        self._target = os.path.abspath(target)
        _check_target(self._target, source)
        above, name = os.path.split(self._target)
        self.path = os.path.join(above, f".{name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
        try:
            os.mkdir(self.path)
        except OSError as error:
            raise _unwritable(self._target, error) from error

    def copy(self, source: str, name: str) -> None:
        """Copy a file, or what a link leads to, to a relative path in the folder.

        Raises:
            SaveError: That fails.
        """
        try:
            shutil.copy2(source, self.place(name))
        except OSError as error:
            raise SaveError(
                "the file cannot be copied", where=source, found=error.strerror or error
            ) from error

    def place(self, name: str) -> str:
        """Return where a file of a relative path goes, in a folder that exists.

        Raises:
            SaveError: That folder cannot be made.
        """
        path = os.path.join(self.path, *name.split("/"))
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        except OSError as error:
            raise _unwritable(self._target, error) from error
        return path

    def commit(self) -> None:
        """Put the folder in its place.

        Raises:
            SaveError: Something has come there in the meantime.
        """
        try:
            with suppress(FileNotFoundError):
                os.rmdir(self._target)  # an empty one, which not every system replaces
            os.rename(self.path, self._target)
        except OSError as error:
            raise _unwritable(self._target, error) from error

    def __enter__(self) -> Self:
        """Return the folder."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Remove the temporary folder if it was not put in place."""
        shutil.rmtree(self.path, ignore_errors=True)


def _check_target(target: str, source: str) -> None:
    """Refuse a target that cannot be a new folder."""
    if Path(os.path.realpath(target)).is_relative_to(os.path.realpath(source)):
        raise SaveError(
            "the output is the folder that is read, or lies in it",
            where=target,
            remedy="name a folder elsewhere",
        )
    if not os.path.isdir(os.path.dirname(target)):
        raise SaveError(
            "the folder above the output does not exist", where=target, remedy="create it"
        )
    if not os.path.lexists(target):
        return
    if not os.path.isdir(target) or os.path.islink(target) or os.listdir(target):
        raise SaveError(
            "the output exists already",
            where=target,
            expected="the name of a new folder, or an empty one",
            remedy="remove it, or choose another name",
        )


def _unwritable(target: str, error: OSError) -> SaveError:
    return SaveError(
        "the folder cannot be written",
        where=target,
        found=error.strerror or error,
        remedy="choose a writable place with enough room",
    )
