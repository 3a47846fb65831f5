"""`amp-rewrite serve`: says where, ends when it is interrupted."""

from __future__ import annotations

import http.client
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from amp_rewrite.cli.main import app
from amp_rewrite.errors import OptionError


def test_it_says_where_and_ends_when_it_is_interrupted(tmp_path: Path) -> None:
    pytest.importorskip("waitress")
    command = [sys.executable, "-m", "amp_rewrite", "serve", str(tmp_path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        found = re.match(r"http://127\.0\.0\.1:(\d+)/ has the runs; Ctrl-C ends", line)
        assert found is not None, line
        connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=10)
        connection.request("GET", "/")
        assert connection.getresponse().status == 200
        connection.close()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert b"Traceback" not in errors


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["serve", str(tmp_path / "no")])
    assert isinstance(result.exception, OptionError)


def test_other_machines_are_not_served(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["serve", str(tmp_path), "--host", "0.0.0.0"])
    assert isinstance(result.exception, OptionError)
    assert "ssh -L" in str(result.exception)
