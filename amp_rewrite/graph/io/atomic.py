"""Replace a file as a whole or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, Self

from amp_rewrite.errors import SaveError


class Replacement:
    """A file that is being written under a hidden temporary name."""

    def __init__(self, folder: str, name: str) -> None:
        """Create the temporary file in `folder`, for a file that will be called like `name`.

        A folder that is missing is made.
        """
        self._folder = folder
        os.makedirs(folder, exist_ok=True)
        self.path = os.path.join(folder, f".{name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        self.file: IO[bytes] = open(descriptor, "wb", buffering=1 << 16)  # noqa: SIM115

    def commit(self, name: str) -> None:
        """Put the file in the place of `name`, whose permissions it takes over."""
        target = os.path.join(self._folder, name)
        self.file.flush()
        with suppress(FileNotFoundError):
            os.fchmod(self.file.fileno(), stat.S_IMODE(os.stat(target).st_mode))
        os.fsync(self.file.fileno())
        os.replace(self.path, target)
        _sync_folder(self._folder)

    @property
    def committed(self) -> bool:
        """Whether the file has been put in place, even if making that durable failed."""
        return not os.path.lexists(self.path)

    def __enter__(self) -> Self:
        """Return the replacement."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the temporary file, and remove it if it was not committed."""
        try:
            with suppress(OSError):  # a full disk fails again when the buffer is flushed
                self.file.close()
        finally:
            with suppress(FileNotFoundError):
                os.unlink(self.path)


def _sync_folder(folder: str) -> None:
    """Make a rename durable; not every system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def one_at_a_time(folder: str) -> Generator[None]:
    """Let one process, and one thread of it, put files in place in a folder at a time."""
    with ExitStack() as lock:
        with suppress(OSError, ImportError):
            import fcntl  # not on Windows

            descriptor = os.open(folder, os.O_RDONLY)
            lock.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


@contextmanager
def writing(what: str, where: object) -> Generator[None]:
    """Say of what the system refuses in the block that something cannot be written."""
    try:
        yield
    except OSError as error:
        raise SaveError(
            f"the {what} cannot be written",
            where=where,
            found=error.strerror or error,
            remedy="a file is in its place"
            if isinstance(error, FileExistsError | NotADirectoryError)
            else "choose a writable folder with enough room",
        ) from error


def check_target(folder: str, name: str) -> None:
    """Refuse a target that cannot or must not be replaced."""
    target = os.path.join(folder, name)
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise SaveError(
            "the output cannot be written", where=target, found=error.strerror
        ) from error
    if not stat.S_ISREG(mode):
        what = (
            "the output is a folder" if stat.S_ISDIR(mode) else "the output is not a regular file"
        )
        raise SaveError(what, where=target, remedy="name another file")
    if not os.access(target, os.W_OK):
        raise SaveError(
            "the output exists and is write-protected", where=target, remedy="choose another path"
        )
