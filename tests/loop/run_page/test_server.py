"""A folder that is served: over a socket, and in a browser."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from chromium import LAPTOP
from run_pages import made_up

from amp_rewrite.errors import OptionError
from amp_rewrite.loop.run_page import server as serving
from amp_rewrite.loop.run_page.run_data import FINISHED
from amp_rewrite.loop.run_page.run_document import render
from amp_rewrite.loop.run_page.run_folder import RunFolder
from amp_rewrite.rewriting.report.write_text import write_text


def put(folder: Path, title: str, **other: Any) -> None:
    text = render({"runs": [made_up(title, **other)], "source": None})
    write_text(folder / f"{len(title)}.html", text)


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    pytest.importorskip("waitress")
    put(tmp_path, "a")
    server = serving.server(RunFolder(tmp_path), port=0)
    thread = Thread(target=server.run, daemon=True)
    thread.start()
    yield int(server.effective_port)
    server.close()
    thread.join(5)


def test_it_answers_over_a_socket(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/runs.json")
    answer = connection.getresponse()
    assert answer.status == 200
    assert [run["title"] for run in json.loads(answer.read())["runs"]] == ["a"]
    assert answer.getheader("Server") is None
    connection.request("HEAD", "/")
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b"")
    connection.close()


HOST = b" HTTP/1.1\r\nHost: localhost\r\n"
EVIL = b" HTTP/1.1\r\nHost: evil.example\r\n"
RAW = {
    "a traversal": (b"GET /../../etc/passwd" + HOST, b"404"),
    "an encoded traversal": (b"GET /%2e%2e/%2e%2e/etc/passwd" + HOST, b"404"),
    "an address as path": (b"GET http://evil.example/" + EVIL, b"403"),
    "no host": (b"GET / HTTP/1.0\r\n", b"403"),
    "two hosts": (b"GET /" + HOST + b"Host: evil.example\r\n", b"40"),
    "a body": (b"POST /" + HOST + b"Content-Length: 0\r\n", b"405"),
    "no request": (b"\x16\x03\x01\x00\r\n", b"400"),
}


@pytest.mark.parametrize("kind", RAW)
def test_what_no_reader_sends_is_refused(kind: str, port: int) -> None:
    request, status = RAW[kind]
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(request + b"\r\n")
        answer = connection.recv(65536)
    assert answer.split(b" ")[1].startswith(status)
    assert b"root:" not in answer


def test_it_listens_on_this_machine_alone(tmp_path: Path) -> None:
    pytest.importorskip("waitress")
    server = serving.server(RunFolder(tmp_path), port=0)
    assert server.socket.getsockname() == ("127.0.0.1", int(server.effective_port))
    server.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "example.org", "", "localhost "])
def test_an_address_that_others_reach_is_refused(host: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="this machine alone"):
        serving.server(RunFolder(tmp_path), host)


def test_a_port_that_is_in_use_is_an_error(port: int, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"127\.0\.0\.1:\d+: nothing can listen there"):
        serving.server(RunFolder(tmp_path), port=port)


def test_without_waitress_the_error_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(serving, "import_module", missing)
    with pytest.raises(OptionError, match=r"pip install 'amp-rewrite\[serve\]'"):
        serving.server(RunFolder(tmp_path))


@pytest.mark.browser
def test_a_browser_sees_new_runs_without_loading_the_page_again(
    chromium: Any, port: int, tmp_path: Path
) -> None:
    errors: list[str] = []
    requests: list[str] = []
    page = chromium.new_page(viewport=LAPTOP)
    page.on("console", lambda message: errors.append(message.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    address = f"http://127.0.0.1:{port}/"
    page.goto(address)
    page.wait_for_selector("html[data-ready]")
    assert page.locator("h1").inner_text().startswith("Running")
    page.locator("#log").check()
    put(tmp_path, "<b>bb</b>", state=FINISHED)
    page.evaluate("ask()")
    assert page.locator("h1").inner_text() == "2 runs: 1 running, 1 finished"
    names = page.locator(".run-name bdi").all_inner_texts()
    assert sorted(names) == ["<b>bb</b>", "a"]
    assert page.locator("figure").first.locator(".values bdi").count() == 2
    assert page.locator("#log").is_checked()
    assert set(requests) == {address, f"{address}runs.json"}
    assert errors == []
    page.close()
