"""Overlays for Model Explorer, held against its own package where that is installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from page_models import BRANCHES, NAMES, bare_evidence, result_of
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.page.evidence import Evidence, measured
from amp_rewrite.page.model_explorer import overlays, write_overlays


@pytest.fixture
def found() -> dict[str, Any]:
    model = parse(BRANCHES)
    result = amp.rewrite(model)
    feeds = [{"x": np.ones((2, 4), np.float32), "b": np.array(True)}]
    verification = amp.verify(model, result.model, feeds)
    evidence = Evidence(NAMES, verification=verification, histograms=measured(model, result, feeds))
    return overlays(result, result.report, evidence)


def test_a_node_is_found_by_its_name_and_by_what_it_makes(found: dict[str, Any]) -> None:
    precision = found["precision"]["results"]
    assert precision["enc/dot"] == precision["h"]
    assert precision["h"]["value"] == "float16"
    assert precision["norm/mean"]["value"] == precision["m"]["value"] == "float32"
    assert found["reason"]["results"]["norm/square"]["value"] == "deny-list"
    assert found["range"]["results"]["h"]["value"] == 1
    assert set(found["error"]["results"]) >= {"h", "enc/dot"}


def test_what_was_not_measured_has_no_overlay() -> None:
    result = result_of(BRANCHES)
    assert set(overlays(result, result.report, bare_evidence())) == {"precision", "reason"}


def test_the_names_of_outputs_are_those_of_both_models() -> None:
    result = result_of(BRANCHES)
    names = overlays(result, result.report, bare_evidence())["precision"]["results"]
    after = {o for n in result.model.graph for o in (v.name for v in n.outputs)}
    assert {"y", *result.plan.inner.values()} <= set(names)
    assert set(result.plan.inner.values()) <= after


def test_each_data_set_has_a_file(found: dict[str, Any], tmp_path: Path) -> None:
    written = write_overlays(tmp_path / "overlay.json", found)
    names = ["overlay.json", "overlay.reason.json", "overlay.error.json", "overlay.range.json"]
    assert [path.name for path in written] == names
    assert json.loads(written[0].read_text("utf-8")) == found["precision"]


def test_model_explorer_reads_the_files(found: dict[str, Any], tmp_path: Path) -> None:
    builder = pytest.importorskip("model_explorer.node_data_builder")
    config = pytest.importorskip("model_explorer.config")
    for path in write_overlays(tmp_path / "overlay.json", found):
        read = json.loads(path.read_text("utf-8"))
        results = {k: builder.NodeDataResult(**v) for k, v in read["results"].items()}
        gradient = [builder.GradientItem(**stop) for stop in read.get("gradient", [])]
        data = builder.GraphNodeData(results=results, name=read["name"], gradient=gradient)
        again = json.loads(data.to_json_string())
        assert again["results"] == read["results"]
        assert again.get("gradient", []) == read.get("gradient", [])
        shown = config.ModelExplorerConfig()
        shown.add_node_data_from_path(str(path))
        assert shown.node_data_sources == [str(path)]
