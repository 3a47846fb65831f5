"""The models of a folder in turn; the folder appears whole, or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from amp_rewrite.base import arguments
from amp_rewrite.errors import AmpError
from amp_rewrite.graph.io.model_folder import ModelFile
from amp_rewrite.graph.io.new_folder import NewFolder
from amp_rewrite.graph.io.shared_data import SharedData, sharing
from amp_rewrite.numerics.folder_models import FolderModels
from amp_rewrite.numerics.folder_report import FolderReport, ModelEntry, State
from amp_rewrite.rewriting.connected_ends import (
    Connection,
    End,
    Ends,
    kept_together,
    mismatch,
    types_of,
)
from amp_rewrite.rewriting.plan.options import RewriteOptions

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Done:
    """What became of one model.

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
"""What is done with one model, given its file and the options that fit it."""


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
        target: str | None,
        ends_after: Callable[[Path, RewriteOptions], Ends],
    ) -> FolderReport:
        """Do it.

        Args:
            names: File of each taken model -> as what it is written.
            target: The folder to write; None for none.
            ends_after: What the ends of a model become.
        """
        folder = self.models.folder
        with ExitStack() as stack:
            new = None if target is None else stack.enter_context(NewFolder(target, folder.path))
            links = self._links(names)
            options = self._options(links, ends_after)
            copied = self._copied_files(names)
            shared = SharedData([] if new is None else [os.path.join(new.path, n) for n in copied])
            entries: list[ModelEntry] = []
            ends = {file: facts.ends for file, facts in self.models.known.items()}
            for model in self.taken:
                place = None if new is None else new.place(names[model.name])
                entry, after = self._entry(model, options, names[model.name], place, shared)
                entries.append(entry)
                if after is not None:
                    ends[model.name] = after
            complete = new is not None and all(entry.output is not None for entry in entries)
            if new is not None and complete:
                self.progress("copying other files")
                for name in copied:
                    new.copy(folder.of(name), name)
                new.commit()
        left = [m.name for m in folder.models if m.name not in names]
        made_of = {form: f"what is made of {file} takes its place" for file, form in names.items()}
        odd = (mismatch(link, ends) for link in links)
        kept = _also_kept(options, self.options)
        target_taken = self.models.target(self.options)
        return FolderReport(
            folder.path,
            target,
            tuple(entries),
            {m: made_of.get(m, "another form is converted") for m in left},
            len(set(copied) - {m.name for m in folder.models}),
            len(links),
            kept,
            tuple(line for line in odd if line is not None),
            shared.once,
            shared.again,
            complete,
            target_taken,
        )

    def _entry(
        self,
        model: ModelFile,
        options: Mapping[str, RewriteOptions],
        name: str,
        place: str | None,
        shared: SharedData,
    ) -> tuple[ModelEntry, Ends | None]:
        """Do it with one model; write the result to a place, if there is one."""
        path = Path(self.models.folder.of(model.name))

        def progress(what: str) -> None:
            self.progress(f"{model.name}: {what}")

        progress("convert")
        try:
            if model.name in self.models.broken:
                raise self.models.broken[model.name]
            done = self.one(path, options[model.name], progress)
            written = place is not None and done.save is not None
            if place is not None and done.save is not None:
                with sharing(shared):
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

    def _options(
        self,
        links: Sequence[Connection],
        ends_after: Callable[[Path, RewriteOptions], Ends],
    ) -> dict[str, RewriteOptions]:
        """Return the options for each model: names that fit it; of what is connected, both ends.

        A model in which nothing becomes low keeps its ends, so that what is connected to it has to.
        """
        facts, target = self.models.known, self.models.target(self.options)
        options_of = {
            m.name: facts[m.name].fitting(self.options, target)
            for m in self.taken
            if m.name in facts
        }
        if self.options.keep_io_types is True or not links:
            return options_of
        before = {file: k.ends for file, k in facts.items()}
        ends = {End(file, name) for file, model in before.items() for name in model.names}
        new = kept_together(links, {end for end in ends if self.options.keeps_type(end.name)})
        kept, after, waiting = set(new), dict(before), {*options_of}
        while waiting:
            for file in sorted(waiting):
                names = tuple(sorted(end.name for end in kept if end.file == file))
                options_of[file] = replace(options_of[file], keep_io_types=names or False)
                self.progress(f"{file}: looking at its inputs and outputs")
                with suppress(AmpError):  # which is told when the model's turn comes
                    after[file] = ends_after(Path(self.models.folder.of(file)), options_of[file])
            parted = [link for link in links if _is_parted(link, before, after)]
            new = kept_together(links, {end for link in parted for end in link}) - kept
            kept |= new
            waiting = {end.file for end in new} & options_of.keys()
        return options_of


def _is_parted(link: Connection, before: Mapping[str, Ends], after: Mapping[str, Ends]) -> bool:
    """Tell whether the sides of a connection have two types now, by a change of one of them."""
    return mismatch(link, after) is not None and types_of(link, before) != types_of(link, after)


def _also_kept(
    options: Mapping[str, RewriteOptions], options_given: RewriteOptions
) -> dict[str, tuple[str, ...]]:
    """Return, by file, which ends keep their type though the options as given do not say so."""
    if options_given.keep_io_types is True:
        return {}
    names_of: dict[str, tuple[str, ...]] = {}
    for file, chosen in options.items():
        names = () if isinstance(chosen.keep_io_types, bool) else chosen.keep_io_types
        names_of[file] = tuple(name for name in names if not options_given.keeps_type(name))
    return {file: names for file, names in names_of.items() if names}
