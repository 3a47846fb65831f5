"""The comparison on exported models, with a folder as tools/corpus/export_models.py writes it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import exported
import numpy as np
import onnx
import onnx.parser
import pytest
import tables

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TEXT = """
<ir_version: 10, opset_import: ["" : 20]>
g (float[N,4] x) => (float[N,4] y) <float[4,4] w = {
  1.0, 0.5, 0.0, 0.0, 0.0, 1.0, 0.5, 0.0, 0.0, 0.0, 1.0, 0.5, 0.5, 0.0, 0.0, 1.0}> {
  h = MatMul(x, w)
  y = Tanh(h)
}"""


@pytest.fixture(name="folder")
def exported_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "models").mkdir()
    onnx.save(onnx.parser.parse_model(TEXT), tmp_path / "models" / "tiny.dynamo.onnx")
    cases = {
        "short": np.arange(8, dtype=np.float32).reshape(2, 4),
        "large": np.full((1, 4), 1e6, np.float32),
    }
    for case, array in cases.items():
        np.savez(tmp_path / f"{case}.npz", x=array)
    entry = {
        "name": "tiny.dynamo",
        "network": "tiny",
        "exporter": "dynamo",
        "cases": {case: f"{case}.npz" for case in cases},
    }
    failed = {"name": "tiny.torchscript", "network": "tiny", "error": "cannot"}
    (tmp_path / "corpus.json").write_text(json.dumps([entry, failed]), "utf-8")
    monkeypatch.setenv("AMP_EXPORTED", str(tmp_path))
    return tmp_path


@pytest.mark.slow
def test_every_tool_is_judged_on_short_and_on_hard_inputs(folder: Path) -> None:
    target = folder / "found.json"
    command = [sys.executable, str(BENCHMARKS / "bench.py"), "exported", "--json", str(target)]
    tools = ["--tools", "amp_rewrite", "onnxruntime"]
    done = subprocess.run([*command, *tools], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads(target.read_text("utf-8"))["rows"]
    assert [(row["tool"], row["precision"]) for row in rows] == [
        ("amp_rewrite", "float16"),
        ("onnxruntime", "float16"),
        ("amp_rewrite", "bfloat16"),
    ]
    ours = rows[0]
    assert (ours["low"], ours["products"], ours["checker"], ours["error"]) == (1, 1, "yes", "")
    assert ours["cosine"]["short"] > 0.999999
    assert "| tiny | float16 | " in done.stdout


def test_models_that_an_exporter_could_not_write_are_left_out(folder: Path) -> None:
    (model,) = exported.exported()
    assert model.name == "tiny.dynamo"
    assert model.path == folder / "models" / "tiny.dynamo.onnx"
    assert list(model.feeds()) == ["short", "large"]


def test_infinity_where_float32_is_finite_is_the_worst_cosine(folder: Path) -> None:
    (model,) = exported.exported()
    expected = exported.references(model)
    text = TEXT.replace("Tanh(h)", "Cast<to = 1>(l) ")
    text = text.replace("h = MatMul(x, w)", "h = MatMul(x, w) l = Cast<to = 10>(h)")
    onnx.save(onnx.parser.parse_model(text), folder / "low.onnx")
    low = exported.dtypes.low_dtype("float16")
    found = exported.cosines(model, expected, folder / "low.onnx", low)
    assert found["large"] == float("-inf")
    assert found["short"] < 0.999


def test_nodes_are_put_in_order(folder: Path) -> None:
    model = onnx.parser.parse_model(TEXT)
    model.graph.node.reverse()
    onnx.save(model, folder / "unsorted.onnx")
    assert [n.op_type for n in exported.in_order(folder / "unsorted.onnx").graph.node] == [
        "MatMul",
        "Tanh",
    ]


def test_a_cell_tells_what_failed() -> None:
    facts = {"model": "a", "precision": "float16", "tool": "t", "low": 1, "products": 2}
    good = {**facts, "error": "", "checker": "no", "cosine": {"short": 1.0, "late": 0.5}}
    bad = {**facts, "error": "does not load"}
    lost = {**good, "model": "b", "checker": "yes", "cosine": {"short": 0.5, "late": None}}
    lines = tables.exported([good, bad, lost]).splitlines()[2:]
    assert lines == [
        "| a | float16 | 1.00000 / 0.50000, 50% low, 1 of 2 run, not valid |",
        "| b | float16 | 0.50000 / not finite, 50% low |",
    ]
