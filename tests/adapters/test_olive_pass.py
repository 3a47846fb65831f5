"""A workflow of Olive rewrites a model, with the options that its configuration says."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from tools_installed import installed

import amp_rewrite as amp
from amp_rewrite.cli.demo import demo_model


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    installed("olive")
    onnx.save(demo_model(), tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def olive_pass() -> Any:
    """Return the module, which imports Olive."""
    return importlib.import_module("amp_rewrite.adapters.olive_pass")


def run(folder: Path, **options: object) -> Path:
    """Run a workflow of one pass; return the model that it made."""
    workflow = {
        "input_model": {"type": "ONNXModel", "model_path": str(folder / "model.onnx")},
        "passes": {"mixed": {"type": "AmpRewrite", **options}},
        "output_dir": str(folder / "out"),
        "cache_dir": str(folder / "cache"),
    }
    workflows = importlib.import_module("olive.workflows")
    # As from a file: Olive's configurations are JSON.
    given = json.loads(json.dumps(workflow)), json.loads(json.dumps(olive_pass().package_config()))
    assert workflows.run(given[0], package_config=given[1]).has_output_model()
    return next((folder / "out").rglob("*.onnx"))


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ({}, {}),
        ({"precision": "bfloat16", "target": "cpu"}, {"precision": "bfloat16", "target": "cpu"}),
        ({"deny_nodes": ["classifier*"], "keep_io_types": False}, None),
    ],
)
def test_the_pass_writes_what_rewrite_makes(
    options: dict[str, Any], changes: dict[str, Any] | None, folder: Path
) -> None:
    made = run(folder, **options)
    amp.rewrite(folder / "model.onnx", **(options if changes is None else changes)).save("own.onnx")
    assert made.read_bytes() == (folder / "own.onnx").read_bytes()


@pytest.mark.filterwarnings("default")
def test_the_package_configuration_keeps_the_passes_of_olive(folder: Path) -> None:
    assert folder.exists()
    names = set(olive_pass().package_config()["passes"])
    assert {"AmpRewrite", "OnnxFloatToFloat16"} <= names
