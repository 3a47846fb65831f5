"""Evidence: sizes of files, and whether a file is what the options make of a model."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from page_models import BRANCHES
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.page.evidence import differing, measured


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(parse(BRANCHES), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def test_a_file_that_the_options_make_does_not_differ(model: Path, tmp_path: Path) -> None:
    result = amp.rewrite(model)
    result.save(tmp_path / "low.onnx")
    assert differing(result, tmp_path / "low.onnx") == ()


def test_a_file_that_other_options_make_differs_where_the_types_do(
    model: Path, tmp_path: Path
) -> None:
    amp.rewrite(model, deny_nodes=["last"]).save(tmp_path / "low.onnx")
    assert differing(amp.rewrite(model), tmp_path / "low.onnx") == ("last",)


def test_without_data_inputs_are_made_up(model: Path) -> None:
    result = amp.rewrite(model)
    found = measured(model, result, None)
    assert found["h"].largest > 0
    assert "m" in found
