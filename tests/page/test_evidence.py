"""Evidence: what is measured of a model."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from page_models import BRANCHES
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.page.evidence import measured


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(parse(BRANCHES), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def test_without_data_inputs_are_made_up(model: Path) -> None:
    result = amp.rewrite(model)
    found = measured(model, result, None)
    assert found["h"].largest > 0
    assert "m" in found
