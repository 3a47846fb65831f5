"""Facts about the models of a folder before anything is done with them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from amp_rewrite import targets
from amp_rewrite.errors import AmpError, OptionError
from amp_rewrite.graph.flat import FlatGraph
from amp_rewrite.graph.io.model_folder import ModelFile, ModelFolder
from amp_rewrite.rewriting.apply.written_metadata import recorded_target
from amp_rewrite.rewriting.connected_ends import Connection, Ends, connections
from amp_rewrite.rewriting.plan.options import RewriteOptions
from amp_rewrite.rewriting.read_source import read_source

_NAMING = (
    *("preserve", "deny_nodes", "allow_nodes", "deny_ops", "allow_ops", "variables"),
    *("input_ranges", "keep_io_types", "dims"),
)
"""The options that hold names, which need not fit every model of a folder."""

_Unfit = Mapping[tuple[str, Any], OptionError]


@dataclass(frozen=True)
class Known:
    """The facts about a model.

    Attributes:
        data: Its data files, links resolved.
        unfit: The names in the options that fit nothing in it, with the error for each.
        names_target: Whether the model says for which target it was made.
    """

    ends: Ends
    data: frozenset[str]
    unfit: _Unfit
    names_target: bool

    def fitting(self, options: RewriteOptions, target: str | None = None) -> RewriteOptions:
        """Return options without the names that fit nothing in this model.

        `target` is taken if neither they nor the model name one.
        """
        changes: dict[str, Any] = {}
        if target is not None and not self.names_target:
            changes["target"] = target
        for option in _NAMING:
            entries = getattr(options, option)
            if isinstance(entries, Mapping):
                changes[option] = {
                    k: v for k, v in entries.items() if (option, k) not in self.unfit
                }
            elif not isinstance(entries, bool):
                changes[option] = tuple(n for n in entries if (option, n) not in self.unfit)
        return replace(options, **changes)


@dataclass(frozen=True)
class FolderModels:
    """The models of a folder: by file, the facts about it, or why it cannot be read."""

    folder: ModelFolder
    known: Mapping[str, Known]
    broken: Mapping[str, AmpError]

    @classmethod
    def read(cls, folder: ModelFolder, options: RewriteOptions) -> FolderModels:
        """Read the models one after the other; none of them stays in memory."""
        facts: dict[str, Known] = {}
        broken: dict[str, AmpError] = {}
        for model in folder.models:
            try:
                path = folder.of(model.name)
                flat = read_source(path, inline_functions=options.inline_functions)
                data = frozenset(map(os.path.realpath, flat.files.paths))
                has_target = recorded_target(flat) is not None
                unfit = _unfit_names(options, flat)
                facts[model.name] = Known(Ends.of(flat), data, unfit, has_target)
            except AmpError as error:
                broken[model.name] = error
        return cls(folder, facts, broken)

    def target(self, options: RewriteOptions) -> str | None:
        """Return the target of the folder's layout, if the options leave it open.

        Where transformers.js looks for models they are for browsers, unless that is in a type that
        WebGPU does not compute in.
        """
        is_open = options.target is None and not options.lists and options.makes_low
        if not is_open or not self.folder.has_forms:
            return None
        browsers = targets.find(targets.BROWSERS)
        return browsers.name if options.precision in browsers.precisions else None

    def check_names(self, taken: Iterable[ModelFile]) -> None:
        """Refuse names in the options that fit nothing in any of some models.

        Raises:
            OptionError: One is such.
        """
        unfit = [self.known[m.name].unfit for m in taken if m.name in self.known]
        for name in unfit[0] if unfit else ():
            if all(name in other for other in unfit):
                raise unfit[0][name]

    def data_of(self, taken: Iterable[ModelFile]) -> frozenset[str]:
        """Return the data files of some models; of an unreadable one nothing is known."""
        data_files = (self.known[model.name].data for model in taken if model.name in self.known)
        return frozenset[str]().union(*data_files)

    def links(self, written: Mapping[str, ModelFile]) -> tuple[Connection, ...]:
        """Return what is connected among models in one form and folder.

        `written` has, by file, its name in the new folder.
        """
        together: dict[tuple[str, str], dict[str, Ends]] = {}
        for file, model in written.items():
            if file in self.known:
                group = together.setdefault((model.folder, model.variant), {})
                group[file] = self.known[file].ends
        return tuple(link for models in together.values() for link in connections(models))


def _unfit_names(options: RewriteOptions, flat: FlatGraph) -> _Unfit:
    errors: dict[tuple[str, Any], OptionError] = {}
    for option in _NAMING:
        entries: Any = getattr(options, option)
        for name in () if isinstance(entries, bool) else entries:
            only: Any = {name: entries[name]} if isinstance(entries, Mapping) else (name,)
            try:
                RewriteOptions(**{option: only}).check_names(flat)
            except OptionError as error:
                errors[option, name] = error
    return errors
