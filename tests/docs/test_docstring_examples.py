"""The examples in docstrings run and give what they say."""

from __future__ import annotations

import doctest
from collections.abc import Iterator
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import amp_rewrite as amp

MODULES = ("", "rules.", "losses.", "optimizers.")

MODEL = """<ir_version: 10, opset_import: ["" : 18]>
g (float[N,8] x) => (float[N,4] logits) {
    [fc1] a = MatMul(x, w1) [act] h = Relu(a) [exp] e = Exp(h) [fc2] logits = MatMul(e, w2) }"""
WEIGHTS = {"w1": (8, 16), "w2": (16, 4)}

MOST_USED = (
    *("load", "save", "rewrite", "explain", "convert", "verify", "check", "repair", "tune"),
    *("calibrate", "error_budget", "evaluate", "Evaluator", "raise_opset", "load_lists"),
    *("RewriteOptions", "TrainingSession", "value", "build_step", "Trainer", "train"),
    *("freeze", "LossScaleOptimizer", "FixedLossScale", "DynamicLossScale", "optimizers.Adam"),
    *("optimizers.Momentum", "losses.softmax_cross_entropy", "AmpError"),
)
"""The names that the guides and examples use most, which all have an example."""

SLOW = {
    *("convert", "verify", "repair", "TrainingSession", "Trainer", "train"),
    "LossScaleOptimizer",
}


def with_examples() -> Iterator[str]:
    """Yield the public names whose docstrings have examples."""
    for prefix in MODULES:
        module = import_module(f"amp_rewrite.{prefix}".removesuffix("."))
        for name in module.__all__:
            if ">>> " in (getattr(module, name).__doc__ or ""):
                yield f"{prefix}{name}"


NAMES = tuple(with_examples())


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    parsed, draw = onnx.parser.parse_model(MODEL), np.random.default_rng(0)
    for name, shape in WEIGHTS.items():
        held = (draw.standard_normal(shape) / 4).astype(np.float32)
        parsed.graph.initializer.append(numpy_helper.from_array(held, name))
    return parsed


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in NAMES],
)
def test_examples_give_what_they_say(
    name: str, model: onnx.ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(model, "model.onnx")
    text = attrgetter(name)(amp).__doc__
    names: dict[str, Any] = {"amp": amp, "np": np}
    example, said = doctest.DocTestParser().get_doctest(text, names, name, name, 0), list[str]()
    done = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=said.append)
    assert done.attempted
    assert not done.failed, "".join(said)


def test_the_most_used_names_have_examples() -> None:
    assert len(MOST_USED) == 29
    assert {*MOST_USED} <= {*NAMES}
