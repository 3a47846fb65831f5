"""How often a model is copied on its way to the first step."""

from __future__ import annotations

from collections import Counter
from typing import Any

import onnx_ir as ir
import pytest
from low_steps import batch, train_op

import amp_rewrite as amp
from amp_rewrite.graph.io import load as loading
from amp_rewrite.training.step.build_step import build_step

pytestmark = pytest.mark.filterwarnings("ignore:float16 on a CPU is slower")


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the clones of models, and the models that are made of messages."""
    counts: Counter[str] = Counter()

    def counted(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def call(*arguments: Any, **options: Any) -> Any:
            counts[name] += 1
            return original(*arguments, **options)

        monkeypatch.setattr(owner, name, call)

    counted(ir.Model, "clone")
    counted(loading, "read_model")
    return counts


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("precision", "emulate"),
    [("float32", False), ("float16", False), ("float16", True), ("bfloat16", True)],
)
def test_a_session_copies_the_training_graph_and_what_a_step_is_cut_from(
    copies: Counter[str], precision: str, emulate: bool
):
    op = train_op("mlp", "if")
    copies.clear()
    with amp.TrainingSession(op, precision=precision, emulate=emulate) as session:
        session.run(batch("mlp"))
        assert copies == {"clone": 2}
        session.evaluate(batch("mlp"))
        assert copies == {"clone": 3}
        session.run(batch("mlp"))
        session.evaluate(batch("mlp"))
        assert copies == {"clone": 3}
        session.export()
        assert copies == {"clone": 4}


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_a_step_model_copies_the_training_graph_and_the_model_to_export(
    copies: Counter[str], precision: str
):
    op = train_op("mlp", "if")
    copies.clear()
    step = build_step(op, precision=precision)
    assert copies == {"clone": 2}
    copies.clear()
    with amp.TrainingSession(amp.to_proto(step)) as session:
        session.run(batch("mlp"))
    assert copies == {"read_model": 1, "clone": 1}


def test_making_a_model_trainable_copies_it_once(copies: Counter[str]):
    model = amp.load(amp.to_proto(train_op("mlp").graph.source))
    copies.clear()
    loss = amp.value(model, "loss")
    assert amp.value(model, "loss").graph is loss.graph
    amp.optimizers.Adam().minimize(loss)
    assert copies == {"clone": 1}
