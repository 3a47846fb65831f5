"""Rounds of training steps: a tool that takes too long, and tables made network by network."""

import argparse
from pathlib import Path
from typing import Any

import bench_train
import pytest
import tables
from results import Results


def interpreter(path: Path, line: str) -> str:
    """Return a program in an interpreter's place, which notes that it was started."""
    path.write_text(f'#!/bin/sh\necho started >> "{path}.log"\n{line}\n', "utf-8")
    path.chmod(0o755)
    return str(path)


def test_a_tool_that_takes_too_long_is_stopped_once_and_its_cell_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_train, "LIMIT", 1)
    slow = interpreter(tmp_path / "slow", "exec sleep 100")
    compiled, failed = bench_train.compare(["mlp"], 3, 0, slow, ("torch-compile", "torch"))[:2]
    for row in (compiled, failed):
        assert row["stopped"] == 1
        assert row["ms"] == []
    started = (tmp_path / "slow.log").read_text("utf-8").split()
    assert len(started) == 2, "once for each tool"
    ours = {"network": "mlp", "tool": "ours", "ms": [2.0, 3.0, 2.0], "peak": [100.0] * 3}
    assert tables.train([ours, compiled]).splitlines()[-1] == (
        "| mlp | 2.0 (2.0 to 3.0); 100 (100 to 100) | did not end in 1 s | |"
    )


def test_a_tool_that_fails_leaves_its_cell_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = interpreter(tmp_path / "broken", "echo no torch >&2; exit 1")
    (row,) = bench_train.compare(["mlp"], 1, 0, broken, ("torch",))
    assert row["ms"] == []
    assert "stopped" not in row
    assert capsys.readouterr().err == "torch mlp: no torch\n"


def test_networks_added_one_by_one_name_the_command_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(*_: Any) -> dict[str, float]:
        return {"ms": 1.0, "peak": 2.0}

    monkeypatch.setattr(bench_train, "measure", measured)
    path, parser = tmp_path / "found.json", argparse.ArgumentParser()
    bench_train.add_arguments(parser)
    for name in bench_train.OF_ENGINES[::-1]:
        words = [name, "--engines", "--rounds", "2", "--add", "--json", str(path)]
        monkeypatch.setattr("sys.argv", ["bench_train.py", *words])
        bench_train.train(parser.parse_args(words))
        names = [row["network"] for row in Results.read(path).rows[:: len(bench_train.TOOLS)]]
        assert names == [n for n in bench_train.OF_ENGINES if n in names]
        given = " ".join(names) + " " if len(names) < len(bench_train.OF_ENGINES) else ""
        assert Results.read(path).command == f"train {given}--engines --rounds 2 --json {path}"
