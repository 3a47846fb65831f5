"""A bar appears on a terminal when a command takes its time, and nowhere else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from terminals import Ended, run_on_a_terminal

SCRIPT = """
import sys
from amp_rewrite.cli import late_bar
from amp_rewrite.cli.main import main
late_bar.PATIENCE = float(sys.argv[1])
main(sys.argv[2:])
"""
AT_ONCE, NEVER = "0", "1e6"

unix = pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Write a model with 8 MiB of external weights."""
    width = 1 << 10
    names = ("w0", "w1")
    weights = [
        helper.make_tensor(name, TensorProto.FLOAT, [width, width], bytes(4 * width**2), raw=True)
        for name in names
    ]
    ends = [helper.make_tensor_value_info(v, TensorProto.FLOAT, [1, width]) for v in "xy"]
    nodes = [
        helper.make_node("MatMul", ["x", names[0]], ["h"]),
        helper.make_node("MatMul", ["h", names[1]], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    opsets = [helper.make_opsetid("", 17)]
    path = tmp_path / "m.onnx"
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.save(proto, path, save_as_external_data=True, location="m.data")
    return path


def on_a_terminal(patience: str, *arguments: object) -> Ended:
    """Run a command whose stderr is a terminal."""
    command = ["-c", SCRIPT, patience, *map(str, arguments)]
    return run_on_a_terminal(command, TERM="xterm", COLUMNS="100")


@unix
def test_a_bar_shows_bytes_and_is_gone_in_the_end(model: Path) -> None:
    status, out, drawn = on_a_terminal(AT_ONCE, "convert", model, "-o", model.parent / "o.onnx")
    assert status == 0
    assert "1 of 2" in out or "2 of 2" in out
    assert "writing" not in out
    assert "4.2/4.2 MiB" in drawn or "4.0/4.0 MiB" in drawn
    assert drawn.rstrip("\r\n").endswith("\x1b[2K")


@unix
def test_a_command_that_writes_no_model_says_what_it_does(model: Path) -> None:
    status, out, drawn = on_a_terminal(AT_ONCE, "verify", model, model)
    assert (status, out.splitlines()[-1]) == (0, "holds")
    assert "verifying" in drawn
    assert "0:00:0" in drawn
    assert "bytes" not in drawn


@unix
def test_nothing_is_drawn_for_short_work_or_quietly(model: Path) -> None:
    output = model.parent / "o.onnx"
    assert on_a_terminal(NEVER, "convert", model, "-o", output)[::2] == (0, "")
    assert on_a_terminal(AT_ONCE, "convert", model, "-o", output, "--quiet") == (0, "", "")


def test_nothing_is_drawn_where_stderr_is_no_terminal(model: Path) -> None:
    command = [sys.executable, "-P", "-c", SCRIPT, AT_ONCE, "convert", model, "-o", "o.onnx"]
    done = subprocess.run(command, capture_output=True, cwd=model.parent, check=True)
    assert done.stderr == b""
    assert np.fromfile(next(model.parent.glob("o.onnx.*.data")), np.uint8).size == 4 << 20
