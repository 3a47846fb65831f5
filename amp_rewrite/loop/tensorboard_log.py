"""Rows of metrics as event files for TensorBoard."""

from __future__ import annotations

import numbers
import os
from importlib import import_module
from typing import Any, Self

from amp_rewrite.errors import OptionError, SaveError
from amp_rewrite.graph.io.paths import path_text

_PLACE = ("epoch", "step", "seconds")
"""What a row says about where it stands."""


class TensorBoardLog:
    """A folder to which event files of TensorBoard are written: a curve for each metric.

    The writer is that of tensorboardX, or TensorBoard's own if that is installed alone.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Begin an event file.

        Raises:
            OptionError: Neither tensorboardX nor tensorboard is installed, or it is not a path.
            SaveError: The folder cannot be written.
        """
        path = path_text(folder, OptionError)
        make = _writer()
        try:
            self._writer = make(path)
        except OSError as error:
            raise SaveError(
                "the event file cannot be written", where=folder, found=error.strerror or error
            ) from error

    def add(self, **row: Any) -> None:
        """Write the numbers of one row at its step."""
        for name, value in row.items():
            if name not in _PLACE and isinstance(value, numbers.Real):
                group = "evaluation" if name.startswith("eval_") else "training"
                tag = f"{group}/{name.removeprefix('eval_')}"
                self._writer.add_scalar(tag, float(value), row["step"])

    def close(self) -> None:
        """End the file."""
        self._writer.close()

    def __enter__(self) -> Self:
        """Return the log."""
        return self

    def __exit__(self, *exception: object) -> None:
        """End the file."""
        self.close()


def _writer() -> Any:
    """Return the class of a writer with add_scalar and close."""
    for module, name in (("tensorboardX", "SummaryWriter"), ("tensorboard.summary", "Writer")):
        try:
            return getattr(import_module(module), name)
        except ImportError:
            continue
    raise OptionError(
        "TensorBoard's files need a writer",
        found="neither tensorboardX nor tensorboard",
        remedy="pip install tensorboardX",
    )
