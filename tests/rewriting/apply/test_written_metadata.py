"""The target that a rewritten file records."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import onnx
import pytest

import amp_rewrite as amp
from amp_rewrite.graph.metadata_keys import TARGET_KEY
from amp_rewrite.rewriting.apply.written_metadata import recorded_target

TEXT = """<ir_version: 9, opset_import: ["" : 18]>
g (float[2,2] x) => (float[2,2] y) <float[2,2] w = {1, 2, 3, 4}> { [dot] y = %s }"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    model = onnx.parser.parse_model(TEXT % "MatMul(x, w)")
    model.metadata_props.add(key="author", value="somebody")
    onnx.save(model, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


@pytest.mark.parametrize("target", ["cuda", "webgpu", "webgpu,cuda"])
def test_a_file_and_an_object_record_the_target_once(path: Path, target: Any) -> None:
    low = path.with_name("low.onnx")
    amp.rewrite(path, target=target).save(low)
    notes = [(entry.key, entry.value) for entry in onnx.load(low).metadata_props]
    assert notes == [("author", "somebody"), (TARGET_KEY, target)]
    in_memory = amp.rewrite(onnx.load(path), target=target).model
    assert dict(in_memory.metadata_props) == dict(notes)
    assert recorded_target(in_memory) == target
    again = path.with_name("again.onnx")
    amp.rewrite(low).save(again)
    assert again.read_bytes() == low.read_bytes()


def test_a_rewrite_that_makes_nothing_low_records_nothing(tmp_path: Path) -> None:
    result = amp.rewrite(onnx.parser.parse_model(TEXT % "Exp(x)"))
    assert dict(result.model.metadata_props) == {}


def test_the_path_of_a_kernel_table_is_not_recorded(path: Path, tmp_path: Path) -> None:
    known = files("amp_rewrite.lists") / "kernels" / "CPUExecutionProvider_1.31.1.json"
    table = tmp_path / "table.json"
    table.write_text(known.read_text("utf-8"), "utf-8")
    model = amp.rewrite(path, target=str(table)).model  # pyright: ignore[reportArgumentType]
    assert recorded_target(model) is None


def test_a_target_that_is_not_known_is_none() -> None:
    model = onnx.parser.parse_model(TEXT % "MatMul(x, w)")
    model.metadata_props.add(key=TARGET_KEY, value="abacus")
    assert recorded_target(amp.load(model)) is None
