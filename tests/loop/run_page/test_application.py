"""Answers to a browser: GET and HEAD of two paths, for readers on this machine alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from run_pages import made_up

from amp_rewrite.loop.run_page.application import Application
from amp_rewrite.loop.run_page.run_document import read_runs, render
from amp_rewrite.loop.run_page.run_folder import RunFolder
from amp_rewrite.rewriting.report.write_text import write_text


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    folder.mkdir()
    (tmp_path / "secret.html").write_text(page("secret"))
    write_text(folder / "a.html", page("first"))
    return folder


def page(title: str) -> str:
    return render({"runs": [made_up(title)], "source": None})


@pytest.fixture
def application(runs: Path) -> Application:
    return Application(RunFolder(runs))


def asked(
    application: Application,
    path: str = "/",
    method: str = "GET",
    host: str | None = "127.0.0.1:6106",
    **more: str,
) -> tuple[int, dict[str, str], bytes]:
    found: dict[str, Any] = {}

    def start(status: str, headers: list[tuple[str, str]]) -> None:
        found.update(status=int(status.split()[0]), headers=dict(headers))

    environ = {"REQUEST_METHOD": method, "PATH_INFO": path, **more}
    if host is not None:
        environ["HTTP_HOST"] = host
    body = b"".join(application(environ, start))
    return found["status"], found["headers"], body


def test_the_page_and_its_data_hold_the_runs(application: Application) -> None:
    status, headers, body = asked(application)
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert [run["title"] for run in read_runs(body.decode())] == ["first"]
    status, headers, body = asked(application, "/runs.json")
    assert (status, headers["Content-Type"]) == (200, "application/json; charset=utf-8")
    assert [run["title"] for run in json.loads(body)["runs"]] == ["first"]


@pytest.mark.parametrize("path", ["/", "/runs.json", "/no"])
def test_every_answer_says_what_may_be_done_with_it(application: Application, path: str) -> None:
    _, headers, body = asked(application, path)
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["Content-Length"] == str(len(body))
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize("path", ["/", "/runs.json", "/no"])
def test_head_is_get_without_a_body(application: Application, path: str) -> None:
    status, headers, body = asked(application, path, "GET")
    assert asked(application, path, "HEAD") == (status, headers, b"")
    assert body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "get", ""])
def test_another_method_is_refused(application: Application, method: str) -> None:
    status, headers, _ = asked(application, "/", method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")


TRAVERSALS = (
    "/../secret.html",
    "/%2e%2e/secret.html",
    "/..\\secret.html",
    "//secret.html",
    "/a.html",
    "/./a.html",
    "/runs.json/../../secret.html",
    "/etc/passwd",
    "a.html",
    "",
    "/\x00",
)


@pytest.mark.parametrize("path", TRAVERSALS)
def test_no_path_names_a_file(application: Application, path: str) -> None:
    status, _, body = asked(application, path)
    assert status == 404
    assert b"secret" not in body
    assert b"first" not in body


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:80", "[::1]"])
def test_this_machine_has_its_names(application: Application, host: str) -> None:
    assert asked(application, host=host)[0] == 200


HOSTS = (
    *(None, "", "evil.example", "evil.example:6106", "127.0.0.1.evil.example", "localhost.evil"),
    *("127.0.0.1@evil.example", "evil.example/127.0.0.1", "localhost:evil", "127.0.0.1:6106:1"),
    *("[::1].evil", "::1", "0.0.0.0", "192.168.0.1", "127.0.0.1\r\nX: y", "127.0.0.2"),
)


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("path", ["/", "/runs.json"])
def test_a_foreign_host_gets_nothing(application: Application, host: str | None, path: str) -> None:
    status, _, body = asked(application, path, host=host)
    assert status == 403
    assert b"first" not in body


def test_an_address_that_was_asked_for_is_a_name_too(runs: Path) -> None:
    assert asked(Application(RunFolder(runs), ["127.0.0.2"]), host="127.0.0.2:1")[0] == 200


def test_data_that_a_reader_knows_are_not_sent_again(runs: Path, application: Application) -> None:
    status, headers, body = asked(application, "/runs.json")
    tag = headers["ETag"]
    status, headers, found = asked(application, "/runs.json", HTTP_IF_NONE_MATCH=f'"x", {tag}')
    assert (status, found) == (304, b"")
    write_text(runs / "b.html", page("second"))
    status, headers, found = asked(application, "/runs.json", HTTP_IF_NONE_MATCH=tag)
    assert status == 200
    assert headers["ETag"] != tag
    assert found != body


def test_an_empty_folder_has_data_too(tmp_path: Path) -> None:
    status, _, body = asked(Application(RunFolder(tmp_path)), "/runs.json")
    assert (status, json.loads(body)["runs"]) == (200, [])
