"""The table, the picture and the rounds of the corpus on OpenVINO."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import bench_openvino
import numpy as np
import onnx
import onnx.parser
import openvino_table
import pytest
from exported import SHORT, Exported
from results import Results


def row(model: str, tool: str, *ms: float, distance: float = 0.0, **more: Any) -> dict[str, Any]:
    figures = {"ms": [*ms], "least": [*ms], "error": "", "distance": distance}
    return {"model": model, "tool": tool, **figures, "cosine": 1 - distance, **more}


def floats(*numbers: float) -> np.ndarray[Any, Any]:
    return np.array(numbers, np.float32)


ROWS = [
    row("a", "float32", 10.0, 12.0),
    row("a", "amp_rewrite", 5.0, 6.0, distance=1e-3, low=4),
    row("a", "hint", 4.0, 4.0, distance=4e-3),
    row("a", "onnxruntime", 11.0, 11.0, distance=1e-7),
    row("b", "float32", 1.0),
    row("b", "amp_rewrite", 1.25, low=0),
    row("b", "hint", 0.5, distance=0.5),
    row("c", "float32", error="no rule for it"),
    row("c", "amp_rewrite", low=1),
]


def test_a_line_has_the_times_the_speeds_and_the_errors_of_a_model() -> None:
    text = openvino_table.openvino(ROWS)
    lines = text.splitlines()
    assert lines[2] == (
        "| a | 11 (10) | 5.5 (5) | 4 (4) | 11 (11) | 2.00 | 2.75 | 1.0e-03 | 4.0e-03 |"
    )
    assert lines[3].startswith("| b (left as it is) | 1 (1) | 1.25 (1.25) | 0.5 (0.5) | failed |")
    assert "OpenVINO does not run in float32: c." in text


def test_the_sentences_name_what_is_slower_and_what_is_wrong() -> None:
    text = openvino_table.openvino(ROWS)
    assert "Geometric means over 2 models: the speed is 1.26 of float32's with ours" in text
    assert "our error by the hint's is 0.25 where neither is 0 (1 models)" in text
    assert "Slower than float32 by more than 3 %: b." in text
    assert "Less exact than the hint and not faster, or slower by over 5 %: a, b." in text
    assert (
        "Cosine of the hint below 0.999: a (0.99600, ours 0.99900), b (0.50000, ours 1.00000)"
        in (text)
    )


def test_nothing_measured_is_said() -> None:
    assert "Nothing was measured." in openvino_table.openvino([row("a", "float32", error="no")])


def test_where_networks_were_run_in_pytorch_the_table_has_its_columns() -> None:
    beside = [
        row("a", "torch", 20.0, 24.0, distance=1e-6),
        row("a", "torch-autocast", 10.0, 18.0, distance=2e-3),
    ]
    text = openvino_table.openvino([*ROWS, *beside])
    assert "| PyTorch, ms | PyTorch autocast, ms |" in text
    assert "| 22 (20) | 14 (10) | 2.00 | 2.75 | 0.50 | 0.83 | 1.0e-03 | 4.0e-03 | 2.0e-03 |" in text
    assert "geometric mean: PyTorch 4.00 (1 models), PyTorch autocast 2.40 (1 models)." in text
    assert "PyTorch" not in openvino_table.openvino(ROWS)


def test_the_picture_has_a_point_for_each_tool_and_model() -> None:
    root = ElementTree.fromstring(openvino_table.picture(ROWS))
    points = [title.text for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert points == [
        *("a, ours", "a, OpenVINO's hint bf16", "a, ONNX Runtime float32"),
        *("b, ours", "b, OpenVINO's hint bf16"),
    ]


def test_distances_are_the_worst_of_all_float_outputs(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=floats(3, 4), n=np.array([7]), y=floats(1, 0))
    np.savez(tmp_path / "b.npz", x=floats(3, 4), n=np.array([9]), y=floats(1, 1))
    found = bench_openvino.distances(tmp_path / "a.npz", tmp_path / "b.npz")
    assert found == {"cosine": pytest.approx(0.7071068), "distance": 1.0}
    np.savez(tmp_path / "c.npz", x=floats(3, np.inf), n=np.array([7]), y=floats(1, 0))
    lost = bench_openvino.distances(tmp_path / "a.npz", tmp_path / "c.npz")
    assert lost == {"cosine": None, "distance": None}


def options_of(torch: str | None = None) -> argparse.Namespace:
    return argparse.Namespace(
        json=None, again=[], rounds=0, process_seconds=0.01, torch_python=torch
    )


def model_of(folder: Path) -> Exported:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[4,4] x) => (float[4,4] y) '
    onnx.save(onnx.parser.parse_model(text + "{ y = MatMul(x, x) }"), folder / "m.onnx")
    np.savez(folder / "m.npz", x=np.eye(4, dtype=np.float32))
    return Exported("m", "", folder / "m.onnx", {SHORT: folder / "m.npz"})


def test_a_batch_repeats_what_lies_along_the_axes_of_its_name(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
        g (float[N,3] x, float[2,N] state, float[M] other) => (float[N,3] y) { y = Neg(x) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "f.onnx")
    given = {"x": np.ones((1, 3)), "state": np.ones((2, 1)), "other": np.ones(5)}
    np.savez(tmp_path / "f.npz", **given)
    free = Exported("f", "", tmp_path / "f.onnx", {SHORT: tmp_path / "f.npz"})
    found = bench_openvino.of_batch(free, 4, tmp_path)
    assert found is not None
    assert found.network == "f x4"
    shapes = {name: array.shape for name, array in np.load(found.cases[SHORT]).items()}
    assert shapes == {"x": (4, 3), "state": (2, 4), "other": (5,)}
    assert bench_openvino.of_batch(model_of(tmp_path), 4, tmp_path) is None


def test_a_run_goes_on_where_the_one_before_was_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, ran = model_of(tmp_path), list[str]()

    def measured(_model: Exported, _command: Any, tool: str, folder: Path, _: float) -> Any:
        ran.append(tool)
        np.savez(folder / f"m.{tool}.npz", y=floats(1, 0))
        return {"ms": 2.0, "least": 1.0, "error": "died" if tool == "hint" else ""}

    monkeypatch.setattr(bench_openvino, "measured", measured)
    monkeypatch.setattr(bench_openvino, "corpus", lambda *_: [model])
    monkeypatch.setattr(bench_openvino, "computes_in", lambda _: True)
    monkeypatch.setattr(bench_openvino, "converted", lambda *_, **__: {"low": 1, "error": ""})
    monkeypatch.setattr(bench_openvino, "CACHE", tmp_path)
    path = tmp_path / "found.json"
    words = ["--json", str(path), "--rounds"]
    assert bench_openvino.main([*words, "1"]) == 0
    assert bench_openvino.main([*words, "2"]) == 0
    tools = bench_openvino.TOOLS
    assert ran == [*tools, *(tool for tool in tools if tool != "hint")]
    times = {row["tool"]: (row["ms"], row["error"]) for row in Results.read(path).rows}
    assert times["amp_rewrite"] == ([2.0, 2.0], "")
    assert times["hint"] == ([2.0], "died")
    assert bench_openvino.main([*words, "1", "--again", "m"]) == 0
    assert {len(row["ms"]) for row in Results.read(path).rows} == {1}


def test_exported_models_are_fed_their_long_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {case: Path(case) for case in (SHORT, "long")}
    known = [Exported("a", "dynamo", Path("a"), names), Exported("b", "dynamo", Path("b"), names)]
    known.append(Exported("b", "torchscript", Path("b"), {SHORT: Path(SHORT)}))
    monkeypatch.setattr(bench_openvino, "exported", lambda: known)
    words = argparse.Namespace(exported=True, models=["b.dynamo", "b.torchscript"], folder=None)
    found = bench_openvino.chosen(words, Path())
    assert [(model.network, str(model.cases[SHORT])) for model in found] == [
        *(("b.dynamo", "long"), ("b.torchscript", SHORT)),
    ]


def test_the_models_of_a_folder_are_fed_what_stands_beside_them(tmp_path: Path) -> None:
    model_of(tmp_path)
    (tmp_path / "other.onnx").write_bytes(b"")
    words = argparse.Namespace(exported=False, models=["m"], folder=tmp_path)
    (model,) = bench_openvino.chosen(words, tmp_path)
    assert (model.network, model.cases[SHORT]) == ("m", tmp_path / "m.npz")
    words = argparse.Namespace(exported=False, models=[], folder=tmp_path)
    assert [m.network for m in bench_openvino.chosen(words, tmp_path)] == ["m", "other"]


def test_pytorch_with_other_weights_is_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"float32": 1.0, "torch": 1.0001, "torch-autocast": 1.01}
    commands: dict[str, list[str]] = {}

    def measured(_: Exported, command: list[str], tool: str, folder: Path, _seconds: float) -> Any:
        commands[tool] = command
        np.savez(folder / f"bert.dynamo.{tool}.npz", y=floats(given.get(tool, 1.0)))
        return {"ms": 2.0, "least": 1.0, "error": ""}

    monkeypatch.setattr(bench_openvino, "measured", measured)
    monkeypatch.setattr(bench_openvino, "CACHE", tmp_path)
    model = Exported("bert.dynamo", "dynamo", tmp_path / "m.onnx", {SHORT: tmp_path / "m.npz"})
    found = bench_openvino.Measurement(options_of("its-python"), tmp_path)
    found.add_round(model)
    assert commands["torch-autocast"][0] == "its-python"
    assert commands["torch-autocast"][2:] == ["torch-autocast", "bert"]
    assert [len(row["ms"]) for row in found.rows] == [1] * 6
    given["torch"] = 1.1
    other = bench_openvino.Measurement(options_of("its-python"), tmp_path)
    other.add_round(model)
    texts = {row["tool"]: (row["error"], row["ms"]) for row in other.rows}
    assert texts["torch"] == ("its weights are not the file's: export it with these packages", [])
    assert texts["torch-autocast"] == ("", [])


def test_pytorch_runs_what_was_exported_only(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench_openvino.main(["--torch-python", "python"])
    assert "add --exported" in capsys.readouterr().err


def test_without_bfloat16_there_is_nothing_to_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_openvino, "computes_in", lambda _: False)
    with pytest.raises(SystemExit, match="no instructions for bfloat16"):
        bench_openvino.main([])


@pytest.mark.openvino
@pytest.mark.usefixtures("bfloat16_processor")
def test_every_tool_runs_in_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(tmp_path)
    monkeypatch.setattr(bench_openvino, "CACHE", tmp_path)
    given = options_of()
    found = bench_openvino.Measurement(given, tmp_path)
    found.convert([model])
    found.add_round(model)
    assert [(row["tool"], row["error"], len(row["ms"])) for row in found.rows] == [
        *(("amp_rewrite", "", 1), ("float32", "", 1), ("hint", "", 1), ("onnxruntime", "", 1)),
    ]
    assert all(row["cosine"] == 1.0 for row in found.rows)
