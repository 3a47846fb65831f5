"""What is known of a model is found once, and a model is copied only to be changed."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.infer import infer
from amp_rewrite.optimizers import Momentum

W = "float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}"
MODEL = f"""g (float[2,4] x) => (float[2,4] y) <{W}> {{
    h = MatMul(x, w) e = Exp(h) y = MatMul(e, w) }}"""
LOSS = f"""g (float[2,4] x, float[2,4] t) => (float loss) <{W}> {{
    h = MatMul(x, w) d = Sub(h, t) s = Mul(d, d) loss = ReduceMean<keepdims = 0>(s) }}"""
BATCH = {"x": np.ones((2, 4), np.float32), "t": np.zeros((2, 4), np.float32)}

COUNTED: dict[CodeType, str] = {
    infer.__code__: "inferences",
    build_type_graph.__code__: "type graphs",
    ir.Model.clone.__code__: "clones",
}


def count(call: Callable[[], Any]) -> dict[str, int]:
    """Return how often each of the counted functions runs during a call."""
    found: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code in COUNTED:
            found[COUNTED[frame.f_code]] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    return dict(found)


@pytest.mark.parametrize("kind", ["file", "object"])
def test_verify_infers_types_and_copies_once_for_each_of_two_models(
    kind: str, tmp_path: Path
) -> None:
    onnx.save(parse(MODEL), tmp_path / "a.onnx")
    amp.save(amp.rewrite(tmp_path / "a.onnx").model, tmp_path / "b.onnx")
    paths = [tmp_path / "a.onnx", tmp_path / "b.onnx"]
    before, after = paths if kind == "file" else map(amp.load, paths)
    assert count(lambda: amp.verify(before, after)) == {"inferences": 2, "clones": 2}


def first_run(precision: str) -> dict[str, int]:
    model = amp.load(parse(LOSS))

    def run() -> None:
        op = Momentum(0.1, 0.9).minimize(amp.value(model, "loss"))
        with amp.TrainingSession(op, precision=precision) as session:
            session.run(BATCH)

    return count(run)


def test_a_float32_step_is_copied_when_it_is_trained_built_and_cut() -> None:
    assert first_run("float32") == {"inferences": 1, "clones": 3}


@pytest.mark.filterwarnings("ignore::amp_rewrite.errors.AmpWarning")
def test_a_float16_step_has_one_type_graph() -> None:
    assert first_run("float16") == {"inferences": 2, "type graphs": 1, "clones": 3}


@pytest.mark.parametrize("kind", ["file", "message", "object"])
def test_a_rewrite_infers_types_once_and_copies_no_model(kind: str, tmp_path: Path) -> None:
    onnx.save(parse(MODEL), tmp_path / "a.onnx")
    sources: dict[str, Any] = {
        "file": tmp_path / "a.onnx",
        "message": parse(MODEL),
        "object": amp.load(parse(MODEL)),
    }
    found = count(lambda: amp.rewrite(sources[kind]).model)
    assert found == {"inferences": 1, "type graphs": 1}
