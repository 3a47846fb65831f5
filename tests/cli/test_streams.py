"""`-` is standard input for a model and standard output for a result; messages go elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from amp_rewrite.cli.demo import demo_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    onnx.save(demo_model(), path)
    return path


def command(folder: Path, *arguments: str, read: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    whole = [sys.executable, "-P", "-m", "amp_rewrite", *arguments]
    return subprocess.run(whole, input=read, capture_output=True, cwd=folder, check=False)


def test_a_model_goes_through_a_pipe_as_through_files(model: Path) -> None:
    folder = model.parent
    piped = command(folder, "convert", "-", "-o", "-", read=model.read_bytes())
    assert piped.returncode == 0, piped.stderr
    assert command(folder, "convert", "m.onnx", "-o", "o.onnx").returncode == 0
    assert piped.stdout == (folder / "o.onnx").read_bytes()
    assert b"wrote -" in piped.stderr
    assert b"next:" not in piped.stderr, "no file is there to go on with"
    assert b"/amp-rewrite-" not in piped.stderr, "nobody asked for a temporary file"


def test_weights_beside_a_model_are_in_the_stream(model: Path) -> None:
    folder = model.parent
    onnx.save(demo_model(), model, save_as_external_data=True, location="m.data", size_threshold=0)
    piped = command(folder, "convert", "m.onnx", "-o", "-", "--quiet")
    assert piped.stderr == b""
    found = onnx.load_from_string(piped.stdout)
    assert not any(tensor.external_data for tensor in found.graph.initializer)
    onnx.checker.check_model(found)


def test_a_report_is_data_too(model: Path) -> None:
    done = command(model.parent, "verify", "m.onnx", "m.onnx", "--report", "-")
    assert json.loads(done.stdout)["ok"] is True
    assert b"Passed" in done.stderr


def test_there_is_one_standard_output(model: Path) -> None:
    done = command(model.parent, "convert", "m.onnx", "-o", "-", "--report", "-")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"two results for standard output" in done.stderr


def test_nothing_is_written_of_what_failed(model: Path) -> None:
    done = command(model.parent, "convert", "-", "-o", "-", read=b"no model")
    assert (done.returncode, done.stdout) == (1, b"")
    assert len(done.stderr.splitlines()) == 1


def test_a_dry_run_needs_no_output_and_advises_nothing_about_it(model: Path) -> None:
    done = command(model.parent, "convert", "m.onnx", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert b"nothing was written" in done.stdout
    assert b"amp-rewrite verify" not in done.stdout
    assert sorted(model.parent.iterdir()) == [model]


def test_without_a_dry_run_the_output_has_to_be_named(model: Path) -> None:
    done = command(model.parent, "convert", "m.onnx")
    assert done.returncode == 2
    assert b"missing -o OUTPUT; name the file or the new folder to write" in done.stderr


@pytest.mark.share(3)
@pytest.mark.parametrize("name", [(), ("convert",), ("train",)])
def test_h_is_help(model: Path, name: tuple[str, ...]) -> None:
    short, long = (command(model.parent, *name, flag) for flag in ("-h", "--help"))
    assert short.returncode == 0
    assert short.stdout == long.stdout
    assert b"Usage:" in short.stdout
