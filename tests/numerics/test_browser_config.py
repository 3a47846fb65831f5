"""The config.json of a folder for transformers.js says the types of the caches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import model_folders as folders
import pytest

import amp_rewrite as amp

MERGED = {"onnx/decoder_model_merged.onnx": folders.MERGED}


def config_after(tmp_path: Path, given: Any, **options: Any) -> tuple[Any, tuple[str, ...]]:
    """Return config.json and the notes after converting a decoder with a cache."""
    source = folders.write_folder(tmp_path / "in", MERGED)
    (source / "config.json").write_text(given if isinstance(given, str) else json.dumps(given))
    report = amp.convert_folder(source, tmp_path / "out", **options)
    assert report.written
    assert report.to_dict()["notes"] == list(report.notes)
    text = (tmp_path / "out" / "config.json").read_text()
    return (text if isinstance(given, str) else json.loads(text)), report.notes


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, {"fp16": "float16"}),
        ("float32", {"fp16": "float16"}),
        ({"q4f16": "float16"}, {"q4f16": "float16", "fp16": "float16"}),
    ],
)
def test_float16_caches_are_noted(tmp_path: Path, given: Any, expected: Any) -> None:
    own = {"use_external_data_format": True} | ({} if given is None else {"kv_cache_dtype": given})
    before = {"model_type": "gpt", "transformers.js_config": own}
    after, notes = config_after(tmp_path, before, keep_io_types=False)
    assert after == {
        "model_type": "gpt",
        "transformers.js_config": {"use_external_data_format": True, "kv_cache_dtype": expected},
    }
    assert [note.split(",")[0] for note in notes] == [
        "config.json: transformers.js_config.kv_cache_dtype is fp16: float16 now"
    ]


def test_caches_that_stay_float32_correct_a_config_that_says_otherwise(tmp_path: Path) -> None:
    before = {"transformers.js_config": {"kv_cache_dtype": {"fp16": "float16"}}}
    after, _ = config_after(tmp_path, before)
    assert after["transformers.js_config"]["kv_cache_dtype"] == {"fp16": "float32"}


@pytest.mark.parametrize("said", ["float16", {"fp16": "float16"}])
def test_a_right_config_is_copied(tmp_path: Path, said: Any) -> None:
    before = {"transformers.js_config": {"kv_cache_dtype": said}}
    assert config_after(tmp_path, before, keep_io_types=False) == (before, ())


def test_float32_caches_need_no_config(tmp_path: Path) -> None:
    assert config_after(tmp_path, {"model_type": "gpt"}) == ({"model_type": "gpt"}, ())


def test_a_config_that_is_no_object_is_copied_and_named(tmp_path: Path) -> None:
    after, notes = config_after(tmp_path, "[1", keep_io_types=False)
    assert after == "[1"
    assert notes[0].startswith("config.json: not a JSON object")
