"""A loader of Polygraphy rewrites what another loader loads."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import onnx
import pytest
from tools_installed import installed

import amp_rewrite as amp
from amp_rewrite.cli.demo import demo_model
from amp_rewrite.errors import OptionError


@pytest.fixture
def loader() -> Any:
    """Return the class, whose module imports Polygraphy."""
    installed("polygraphy")
    return importlib.import_module("amp_rewrite.adapters.polygraphy_loader").ToMixedPrecision


@pytest.mark.filterwarnings("default")
def test_the_loader_returns_what_rewrite_makes(loader: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(demo_model(), path)
    expected = amp.to_proto(amp.rewrite(path, target="tensorrt").model)
    from_path = importlib.import_module("polygraphy.backend.onnx").OnnxFromPath
    for source in (from_path(str(path)), path, demo_model()):
        assert loader(source, target="tensorrt")() == expected


@pytest.mark.filterwarnings("default")
def test_nothing_is_loaded_before_the_call(loader: Any) -> None:
    later = loader(lambda: pytest.fail("loaded"), precision="float17")
    with pytest.raises(OptionError, match="unknown precision"):
        loader(demo_model(), precision="float17")()
    assert callable(later)
