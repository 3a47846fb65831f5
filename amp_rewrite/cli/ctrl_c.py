"""Ctrl-C during an import takes effect after it: modules in C fail or crash when cut short."""

from __future__ import annotations

import _thread
import signal
import threading
from types import FrameType

_IMPORTS = "<frozen importlib._bootstrap>"
"""The file that frames of an import say they are of."""

_AGAIN = 0.02
"""After how many seconds it is looked again whether the import is done."""


def wait_for_imports() -> None:
    """Let SIGINT raise KeyboardInterrupt as it does, but no earlier than imports are done."""
    signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if not _is_importing(frame):
        signal.default_int_handler(number, frame)
    later = threading.Timer(_AGAIN, _interrupt_again)
    later.daemon = True
    later.start()


def _interrupt_again() -> None:
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        signal.pthread_kill(main, signal.SIGINT)  # which ends what it may be waiting for, too
    else:
        _thread.interrupt_main()


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTS:
            return True
        frame = frame.f_back
    return False
