"""Serve a folder of runs on this machine."""

from __future__ import annotations

import ipaddress
import os
import select
import socket
from contextlib import suppress
from importlib import import_module
from typing import Any

from amp_rewrite.errors import OptionError
from amp_rewrite.loop.run_page.application import Application
from amp_rewrite.loop.run_page.run_folder import RunFolder

HOST, PORT = "127.0.0.1", 6106

_READERS = 1000
"""Connections at once; browsers keep two or more open for each page."""

_THREADS = 2
_IDLE = 30
"""Seconds after which a connection that says nothing is closed."""

_LESS_URGENT = 10
"""What is added to the niceness of the process: on a busy machine training comes first."""


def server(folder: RunFolder, host: str = HOST, port: int = PORT) -> Any:
    """Return a server of waitress that listens; its `run` serves until it is interrupted.

    waitress (https://docs.pylonsproject.org/projects/waitress) is pure Python without dependencies.
    It reads requests and writes answers without blocking, limits both, and gives a thread to a
    request that is complete only, so that slow readers hold up nobody.

    Args:
        folder: The folder.
        host: Where to listen: an address of this machine that no other one reaches.
        port: The port; 0 is a free one.

    Raises:
        OptionError: waitress is not installed, other machines could reach the address, or it is in
            use.
    """
    check_loopback(host)
    try:
        waitress = import_module("waitress")
    except ImportError:
        raise OptionError(
            "serving runs needs waitress",
            found="it is not installed",
            remedy="pip install 'amp-rewrite[serve]'; single pages open from disk without it",
        ) from None
    application = Application(folder, [f"[{host}]" if ":" in host else host])
    return waitress.create_server(
        application,
        sockets=[_listening(host, port)],
        threads=_THREADS,
        connection_limit=_READERS,
        channel_timeout=_IDLE,
        cleanup_interval=_IDLE,
        asyncore_use_poll=hasattr(select, "poll"),
        ident=None,
    )


def _listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises:
        OptionError: The port is taken, or not for everybody.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise OptionError(
            "nothing can listen there",
            where=f"{host}:{port}",
            found=error.strerror or error,
            remedy="choose another --port; 0 is a free one",
        ) from error


def check_loopback(host: str) -> None:
    """Refuse an address at which other machines could reach the server.

    Raises:
        OptionError: It is one, or no address.
    """
    with suppress(ValueError):
        if ipaddress.ip_address(host).is_loopback:
            return
    raise OptionError(
        "runs are served to this machine alone",
        found=f"{host!r:.80}",
        expected="127.0.0.1, or another address of the loopback",
        remedy="from elsewhere: ssh -L 6106:127.0.0.1:6106 this-machine",
    )


def give_way() -> None:
    """Let other processes come first, where the system knows priorities."""
    if hasattr(os, "nice"):
        os.nice(_LESS_URGENT)
