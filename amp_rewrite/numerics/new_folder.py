"""A folder that appears whole, or not at all."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Self

from amp_rewrite.errors import SaveError
from amp_rewrite.graph.io.atomic import writing


class NewFolder:
    """A folder that is being written beside its place, at `path`: a hidden temporary name."""

    def __init__(self, target: str, source: str) -> None:
        """Create the temporary folder of a target, which may exist if it is empty.

        Raises:
            SaveError: The target exists, lies in the source, or cannot be made.
        """
        self._target = os.path.abspath(target)
        _check_target(self._target, source)
        above, name = os.path.split(self._target)
        self.path = os.path.join(above, f".{name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
        with writing("folder", self._target):
            os.makedirs(self.path)

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
        with writing("folder", self._target):
            os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def commit(self) -> None:
        """Put the folder in its place.

        Raises:
            SaveError: Something has come there in the meantime.
        """
        with writing("folder", self._target):
            with suppress(FileNotFoundError):
                os.rmdir(self._target)  # an empty one, which not every system replaces
            os.rename(self.path, self._target)

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
    if not os.path.lexists(target):
        return
    if not os.path.isdir(target) or os.path.islink(target) or os.listdir(target):
        raise SaveError(
            "the output exists already",
            where=target,
            expected="the name of a new folder, or an empty one",
            remedy="remove it, or choose another name",
        )
