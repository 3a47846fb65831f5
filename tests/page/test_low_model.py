"""The page of a model that came in 16 bits: its painting, its dangers, what was raised."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import low_models
import numpy as np
import onnx
import pytest

import amp_rewrite as amp
from amp_rewrite.page.low_model import as_given, write_check_page, write_repair_page
from amp_rewrite.page.node_table import KEPT, LOW


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return the file of an encoder that is wrong in float16."""
    path = tmp_path / "whisper.fp16.onnx"
    onnx.save(low_models.whisper_encoder(), path)
    return path


def shown(page: Path) -> dict[str, Any]:
    """Return the data of a page."""
    found = re.search(
        r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', page.read_text(), re.S
    )
    assert found is not None
    return json.loads(found[1])


def precisions(data: dict[str, Any]) -> dict[str, int]:
    """Return what each node of a page computes in, by its name."""
    names = (data["strings"][number] for number in data["nodes"]["name"])
    return dict(zip(names, data["nodes"]["precision"], strict=True))


def test_the_page_of_a_check_shows_the_painting_of_the_file_and_its_dangers(model: Path) -> None:
    found = amp.check(model, target="webgpu", run=False)
    page = model.with_name("check.html")
    write_check_page(page, found, model, None)
    data = shown(page)
    dangers = {danger.node for danger in found.dangers}
    assert dangers
    assert {precisions(data)[node] for node in dangers} == {LOW}
    overview = data["overview"]
    assert overview["headline"] == found.verdict
    assert overview["holds"] is False
    assert any("loses too much accuracy in float16" in line for line in overview["failures"])
    assert {cause["reason"] for cause in overview["causes"]} >= {d.reason for d in found.dangers}
    commands = [step["command"] for step in overview["next"]]
    assert commands == [
        "amp-rewrite check whisper.fp16.onnx --target webgpu",
        "amp-rewrite repair whisper.fp16.onnx -o fixed.onnx --target webgpu",
    ]


def test_the_page_of_a_repair_shows_what_was_raised_in_float32(model: Path) -> None:
    data = [low_models.feeds("whisper")]
    made = amp.repair(model, data, target="webgpu")
    output, page = model.with_name("fixed.onnx"), model.with_name("repair.html")
    made.save(output)
    file = model.with_name("batch.npz")
    np.savez(file, allow_pickle=False, **data[0])
    write_repair_page(page, made, model, output, [file])
    told = shown(page)
    found = precisions(told)
    assert {found[danger.node] for danger in made.dangers} == {KEPT}
    assert LOW in found.values()
    assert told["overview"]["holds"] is True
    facts = [fact["name"] for fact in told["overview"]["facts"]]
    assert facts == ["Accuracy", "Arithmetic", "Size"]
    assert any(line.startswith("raised: Pow") for line in told["overview"]["remarks"])
    assert told["pictures"]["histograms"]


def test_the_painting_of_a_file_has_every_node_that_is_low_in_it(model: Path) -> None:
    found = amp.check(model, target="webgpu", run=False)
    whole = as_given(found.result)
    assert whole.context.given is not None
    assert (whole.painting.allow == whole.context.given).all()
    assert len(whole.plan.vertices) > len(found.result.plan.vertices)
