"""The runs in a folder: files in it that are pages of runs, and nothing else on the disk."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from amp_rewrite.base.printable import printable
from amp_rewrite.errors import OptionError
from amp_rewrite.loop.run_page.run_document import read_runs

MOST_RUNS = 24
"""Of more runs the latest are shown: a page of all would be slow, and nobody could tell its lines
apart."""

_LARGEST = 2**24
"""Bytes of the largest file that is read; pages of runs have a few hundred KiB."""

_FLAGS = os.O_RDONLY | sum(
    getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY", "O_CLOEXEC")
)
"""No link is followed, and a pipe is not waited for."""


class Version(NamedTuple):
    """What tells one content of a file from another one."""

    file: int
    size: int
    changed: int  # nanoseconds


class RunFolder:
    """A folder with pages that `RunPage` writes.

    Only regular files in it that end in .html are read: no folders in it, and no links, which could
    lead out of it. What is in a file goes through `checked`, so that of a page by somebody else
    nothing is served, not even its text.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Name the folder.

        Raises:
            OptionError: It is not a folder.
        """
        self.path = Path(path)
        if not self.path.is_dir():
            raise OptionError(
                "there is no folder of runs",
                where=self.path,
                expected="the folder in which train --page writes",
            )
        self._known: dict[str, tuple[Version, list[dict[str, Any]]]] = {}
        self._runs: tuple[dict[str, Any], ...] = ()
        self._lock = threading.Lock()

    def runs(self) -> tuple[dict[str, Any], ...]:
        """Return the data of the latest runs, in the order of their files' names.

        As long as no file changes it is one and the same object.
        """
        with self._lock:
            before = {name: version for name, (version, _) in self._known.items()}
            found = {name: self._read(name) for name in self._names()}
            self._known = {name: known for name, known in found.items() if known is not None}
            if before != {name: version for name, (version, _) in self._known.items()}:
                self._runs = self._latest()
            return self._runs

    def _latest(self) -> tuple[dict[str, Any], ...]:
        """Return the runs that were written last, each with its file."""
        runs = [
            {**run, "file": printable(name)}
            for name, (_, runs) in self._known.items()
            for run in runs
        ]
        order = sorted(range(len(runs)), key=lambda number: runs[number]["written"])
        return tuple(runs[number] for number in sorted(order[-MOST_RUNS:]))

    def _names(self) -> Iterable[str]:
        try:
            with os.scandir(self.path) as entries:
                return sorted(
                    entry.name
                    for entry in entries
                    if entry.name.endswith(".html") and entry.is_file(follow_symlinks=False)
                )
        except OSError:  # it has been removed
            return []

    def _read(self, name: str) -> tuple[Version, list[dict[str, Any]]] | None:
        """Return the version of a file and the runs in it; None if it cannot be read."""
        try:
            with open(os.open(self.path / name, _FLAGS), "rb") as file:
                status = os.fstat(file.fileno())
                version = Version(status.st_ino, status.st_size, status.st_mtime_ns)
                known = self._known.get(name)
                if known is not None and known[0] == version:
                    return known
                if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
                    return None
                return version, read_runs(file.read(_LARGEST).decode("utf-8", "replace"))
        except OSError:
            return None
