"""The comparisons of converters, on tiny models, in one round."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import make_synth
import onnx
import pytest
import stress_models
import tables
from llama_model import Sizes, llama80

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PEER = importlib.util.find_spec("onnxconverter_common")


@pytest.fixture(name="models")
def small_models(tmp_path: Path) -> list[str]:
    chain, weights = tmp_path / "chain8.onnx", tmp_path / "init10k.onnx"
    make_synth.chain8(chain)
    onnx.save(stress_models.init10k(5), weights)
    return [str(chain), str(weights)]


def measure(table: str, folder: Path, *arguments: str) -> tuple[list[dict[str, Any]], str]:
    """Run a table; return its rows and what it printed."""
    target = folder / "found.json"
    command = [sys.executable, str(BENCHMARKS / "bench.py"), table, "--json", str(target)]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(target.read_text("utf-8"))["rows"], done.stdout


@pytest.mark.slow
def test_a_round_converts_every_model_with_every_tool(tmp_path: Path, models: list[str]) -> None:
    tools = ["amp_rewrite", "onnxruntime"]
    rows, printed = measure("rewrite", tmp_path, *models, "--rounds", "1", "--tools", *tools)
    assert [(row["model"], row["tool"]) for row in rows] == [
        (model, tool) for model in ("chain8", "init10k") for tool in tools
    ]
    ours, peer = rows[:2]
    assert ours["nodes"] == 8
    assert (ours["checker"], ours["loads"], ours["error"]) == ("yes", "yes", "")
    for row in (ours, peer):
        for figure in ("cpu", "wall", "peak"):
            (value,) = row[figure]
            assert value > 0
    assert "| chain8, 8 nodes | amp_rewrite |" in printed


def test_a_conversion_that_fails_is_in_the_table_with_its_reason(tmp_path: Path) -> None:
    model = tmp_path / "broken.onnx"
    model.write_bytes(b"\xff")
    rows, printed = measure("rewrite", tmp_path, str(model), "--tools", "amp_rewrite")
    assert "broken.onnx" in str(rows[0]["error"])
    assert "failed: " in printed


def test_the_time_of_a_node_is_without_what_the_smallest_model_takes() -> None:
    cpu = {"chain8": [1.0, 1.2], "chain100k": [3.1, 2.1], "init10k": [1.5, 1.7]}
    nodes = {"chain8": 8, "chain100k": 100_000, "init10k": 20_000}
    rows = [
        {"model": model, "nodes": nodes[model], "tool": "amp_rewrite", "error": ""}
        | {"cpu": seconds, "peak": [70.0, 72.0]}
        for model, seconds in cpu.items()
    ]
    lines = [line.split("|") for line in tables.scaling(rows).splitlines()[2:]]
    assert [[cell.strip() for cell in line[6:8]] for line in lines] == [
        ["", ""],
        ["15 (10 to 20)", "1.00 (1.00 to 1.00)"],
        ["25 (20 to 30)", "2.00 (1.00 to 3.00)"],
    ]


def test_a_training_row_divides_the_steps_of_each_round() -> None:
    rows = [
        {"network": "mlp", "tool": "ours", "ms": [2.0, 3.0, 4.0], "peak": [100.0]},
        {"network": "mlp", "tool": "torch", "ms": [3.0, 6.0, 4.0], "peak": []},
    ]
    last = tables.train(rows).splitlines()[-1]
    assert last == "| mlp | 3.0 (2.0 to 4.0) | 4.0 (3.0 to 6.0) | 1.50 (1.00 to 2.00) | 100 | |"


def test_a_training_row_of_more_engines_divides_the_best_of_both_sides() -> None:
    rows = [
        {"network": "mlp", "tool": "ours", "ms": [4.0], "peak": [100.0]},
        {"network": "mlp", "tool": "openvino", "ms": [2.0], "peak": [90.0]},
        {"network": "mlp", "tool": "torch-autocast", "ms": [3.0], "peak": [300.0]},
        {"network": "mlp", "tool": "torch", "ms": [], "peak": []},
    ]
    head, *_, last = tables.train(rows).splitlines()
    assert "| openvino, ms; peak MiB | torch-autocast, ms; peak MiB |" in head
    assert last.startswith("| mlp | 4.0; 100 | 2.0; 90 | 3.0; 300 | ")
    assert last.endswith("| 1.50 |")


@pytest.mark.slow
def test_the_scaling_table_takes_models_by_path(tmp_path: Path, models: list[str]) -> None:
    arguments = ("--rounds", "1", "--tools", "amp_rewrite")
    rows, printed = measure("scaling", tmp_path, *models, *arguments)
    assert [row["nodes"] for row in rows] == [8, 10]
    assert "| init10k | 10 | amp_rewrite |" in printed


@pytest.mark.slow
def test_the_commands_of_the_startup_table_all_succeed(tmp_path: Path) -> None:
    if PEER is None:
        pytest.skip("onnxconverter-common is not installed")
    rows, printed = measure("startup", tmp_path, "--rounds", "1")
    assert [row["error"] for row in rows] == [""] * 6
    assert "| amp-rewrite --version |" in printed


@pytest.mark.parametrize(
    ("model", "nodes"),
    [
        (stress_models.small126(), 126),
        (stress_models.fanout50k(5), 11),
        (stress_models.init10k(5), 10),
        (stress_models.names10k(4, 50), 4),
        (stress_models.nested30(2, 3), 4),
        (stress_models.bert_base(1, 24), 51),
        (llama80(Sizes(1, 16, 4, 2, 32, 11)), 81),
    ],
    ids=lambda value: value.graph.name if isinstance(value, onnx.ModelProto) else "",
)
def test_a_stress_model_is_valid_and_infers_the_shape_of_its_output(
    model: onnx.ModelProto, nodes: int
) -> None:
    assert len(model.graph.node) == nodes
    onnx.checker.check_model(model, full_check=True)
