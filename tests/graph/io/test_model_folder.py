"""What lies in a folder with models, and what the forms of one are called."""

from __future__ import annotations

from pathlib import Path

import pytest

from amp_rewrite.graph.io.model_folder import ModelFile, ModelFolder


@pytest.mark.parametrize(
    ("name", "precision", "expected"),
    [
        ("onnx/model.onnx", "float16", "onnx/model_fp16.onnx"),
        ("onnx/model_q4.onnx", "float16", "onnx/model_q4f16.onnx"),
        ("onnx/model_int8.onnx", "float16", "onnx/model_int8.onnx"),
        ("onnx/model.onnx", "bfloat16", "onnx/model.onnx"),
        ("model.onnx", "float16", "model.onnx"),
        ("text/model.onnx", "float16", "text/model.onnx"),
    ],
)
def test_a_result_is_called_as_what_looks_for_it_expects(
    name: str, precision: str, expected: str
) -> None:
    assert ModelFile.of(name).in_precision(precision) == expected


def test_of_several_forms_those_that_compute_in_float32_are_converted(tmp_path: Path) -> None:
    names = ("a.onnx", "a_fp16.onnx", "b_q4f16.onnx", "onnx/c.onnx", "onnx/c_q4.onnx", "x.json")
    (tmp_path / "onnx").mkdir()
    for name in (*names, "onnx/c_q4f16.onnx"):
        (tmp_path / name).touch()
    folder = ModelFolder.read(str(tmp_path))
    assert set(folder.files) == {*names, "onnx/c_q4f16.onnx"}
    taken = [model.name for model in folder.convertible()]
    assert taken == ["a.onnx", "b_q4f16.onnx", "onnx/c.onnx", "onnx/c_q4.onnx"]
    assert [model.variant for model in folder.convertible()] == ["", "_q4f16", "", "_q4"]


def test_a_form_that_another_one_becomes_is_no_model_to_convert(tmp_path: Path) -> None:
    (tmp_path / "onnx").mkdir()
    for name in ("model_q4.onnx", "model_q4f16.onnx", "model_int8.onnx"):
        (tmp_path / "onnx" / name).touch()
    taken = [model.name for model in ModelFolder.read(str(tmp_path)).convertible()]
    assert taken == ["onnx/model_int8.onnx", "onnx/model_q4.onnx"]
