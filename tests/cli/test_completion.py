"""Shells complete commands, options and the values that options have."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from amp_rewrite.cli.command_table import COMMANDS
from amp_rewrite.cli.main import main

VARIABLE = "_AMP_REWRITE_COMPLETE"


def completed(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    """Return what bash would offer for the last word of a line."""
    words = line.split(" ")
    monkeypatch.setenv(VARIABLE, "bash_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    with pytest.raises(SystemExit) as done:
        main([])
    assert not done.value.code
    offered = [line.split(",", 1) for line in capsys.readouterr().out.splitlines()]
    return [word for kind, word in offered if kind == "plain"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("amp-rewrite con", ["convert"]),
        ("amp-rewrite train", ["train-step", "train"]),
        ("amp-rewrite convert --prec", ["--precision"]),
        ("amp-rewrite convert m.onnx --precision ", ["float16", "bfloat16", "float32"]),
        ("amp-rewrite verify --str", ["--stress", "--stress-budget"]),
        ("amp-rewrite explain m.onnx --target t", ["tensorrt"]),
        ("amp-rewrite convert m.onnx --level TENSOR", ["TENSOR_CORES_ONLY"]),
        ("amp-rewrite train-step m.onnx --optimizer adam", ["adam", "adamw"]),
        ("amp-rewrite tune --metric cos", ["cosine"]),
        ("amp-rewrite convert mod", []),  # bash goes on with the names of files
    ],
)
def test_bash_is_offered_what_fits(
    line: str,
    expected: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert completed(line, monkeypatch, capsys) == expected


def test_all_commands_are_offered_without_loading_any(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert completed("amp-rewrite ", monkeypatch, capsys) == list(COMMANDS)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_runs_the_script(tmp_path: Path) -> None:
    program = tmp_path / "amp-rewrite"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m amp_rewrite "$@"\n', "utf-8")
    program.chmod(0o755)
    lines = (
        f'eval "$({VARIABLE}=bash_source ./amp-rewrite)"',
        "COMP_WORDS=(./amp-rewrite calib) COMP_CWORD=1",
        "_amp_rewrite_completion ./amp-rewrite",
        'echo "${COMPREPLY[@]}"',
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", "\n".join(lines)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["calibrate"]
