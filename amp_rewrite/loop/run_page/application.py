"""What is answered to a browser: one page and its data, and to nobody else anything."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

from amp_rewrite.loop.run_page.run_document import render
from amp_rewrite.loop.run_page.run_folder import RunFolder
from amp_rewrite.page.document import as_json, policy_of

PAGE, DATA = "/", "/runs.json"
"""The paths that there are: no path names a file, so that none leads out of the folder."""

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_HOST = re.compile(r"(?P<name>[^:\[\]]+|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?")

_ALWAYS = (
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cache-Control", "no-cache"),
)
_NOTHING = "default-src 'none'; frame-ancestors 'none'"


class Answer(NamedTuple):
    """An answer.

    Attributes:
        status: Its status.
        body: Its content.
        kind: The content's type.
        policy: What a browser may do with it.
        headers: What else to say.
    """

    status: HTTPStatus
    body: bytes
    kind: str = "text/plain; charset=utf-8"
    policy: str = _NOTHING
    headers: tuple[tuple[str, str], ...] = ()


class Data(NamedTuple):
    """The data that were answered last.

    Attributes:
        runs: What they were made of.
        body: As JSON.
        tag: Tells them from others.
    """

    runs: Sequence[Mapping[str, Any]]
    body: bytes
    tag: str


class Application:
    """Answers requests (WSGI, https://peps.python.org/pep-3333/) by the runs of a folder.

    A request must name this machine as its host: a page elsewhere whose name is made to point here
    (DNS rebinding) names its own, and gets nothing.
    """

    def __init__(self, folder: RunFolder, hosts: Iterable[str] = ()) -> None:
        """Serve a folder; the machine is called `hosts` besides localhost, 127.0.0.1 and [::1]."""
        self._folder = folder
        self._hosts = frozenset(map(str.lower, (*_LOOPBACK, *hosts)))
        self._data = Data((), b"", "")

    def __call__(
        self, environ: Mapping[str, Any], start_response: Callable[..., object]
    ) -> list[bytes]:
        """Answer one request."""
        method = str(environ.get("REQUEST_METHOD", ""))
        answer = self._answer(method, environ)
        start_response(
            f"{answer.status.value} {answer.status.phrase}",
            [
                ("Content-Type", answer.kind),
                ("Content-Length", str(len(answer.body))),
                ("Content-Security-Policy", answer.policy),
                *_ALWAYS,
                *answer.headers,
            ],
        )
        return [] if method == "HEAD" else [answer.body]

    def _answer(self, method: str, environ: Mapping[str, Any]) -> Answer:
        if not self._is_own(str(environ.get("HTTP_HOST", ""))):
            return Answer(HTTPStatus.FORBIDDEN, b"this server answers to localhost alone\n")
        if method not in ("GET", "HEAD"):
            headers = (("Allow", "GET, HEAD"),)
            return Answer(HTTPStatus.METHOD_NOT_ALLOWED, b"GET and HEAD\n", headers=headers)
        path = environ.get("PATH_INFO", "")
        if path == PAGE:
            return self._page()
        if path == DATA:
            return self._newer(str(environ.get("HTTP_IF_NONE_MATCH", "")))
        return Answer(HTTPStatus.NOT_FOUND, b"there is nothing here\n")

    def _is_own(self, host: str) -> bool:
        found = _HOST.fullmatch(host)
        return found is not None and found["name"].lower() in self._hosts

    def _page(self) -> Answer:
        text = render(_contents(self._folder.runs()))
        policy = f"{policy_of(text)}; frame-ancestors 'none'"
        return Answer(HTTPStatus.OK, text.encode(), "text/html; charset=utf-8", policy)

    def _newer(self, known: str) -> Answer:
        """Answer with the data, unless a reader knows them; they are made when a file changes."""
        runs = self._folder.runs()
        if self._data.runs is not runs or not self._data.body:
            body = as_json(_contents(runs)).encode()
            self._data = Data(runs, body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')
        data = self._data
        kind, headers = "application/json; charset=utf-8", (("ETag", data.tag),)
        if data.tag in (given.strip() for given in known.split(",")):
            return Answer(HTTPStatus.NOT_MODIFIED, b"", kind, headers=headers)
        return Answer(HTTPStatus.OK, data.body, kind, headers=headers)


def _contents(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"runs": runs, "source": DATA.lstrip("/")}
