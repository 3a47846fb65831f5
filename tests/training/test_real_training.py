"""Real training in float32: digits with a small network, text with a small transformer."""

import copy
import math
from typing import Any

import numpy as np
import onnxruntime
import pytest
import train_models
from digits import digits

import amp_rewrite as amp
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.io.save import to_proto
from amp_rewrite.loop.epoch_loop import train
from amp_rewrite.loop.evaluation import evaluate
from amp_rewrite.loop.plan_and_progress import Plan
from amp_rewrite.training.session.training_session import TrainingSession
from amp_rewrite.training.step.build_step import build_step

TARGETS = {"logits": "logits", "labels": "t"}


def minimize(proto, optimizer=None):
    """Return the TrainOp of Adam, or of another optimizer, on the model's own loss."""
    return (optimizer or amp.optimizers.Adam(1e-3)).minimize(amp.value(load(proto), "loss"))


def cnn_op(seed=0):
    return minimize(train_models.digits_cnn(seed))


@pytest.fixture(scope="module")
def trained():
    """Return a session that has been trained on digits."""
    data, held = digits()
    step = build_step(cnn_op(), targets=TARGETS, seed=2)
    session = TrainingSession(load(to_proto(step)), threads=1)
    train(session, data, Plan(epochs=10, batch=64))
    yield session, held
    session.close()


def test_digits_are_recognised_in_98_of_100_cases(trained):
    session, held = trained
    assert evaluate(session, held, 128)["eval_accuracy"] >= 0.98


def test_the_exported_model_has_the_original_structure_and_the_accuracy(trained, tmp_path):
    session, held = trained
    path = tmp_path / "trained.onnx"
    session.export(path)
    original = train_models.digits_cnn()
    found = to_proto(load(path))
    assert [n.SerializeToString() for n in found.graph.node] == [
        n.SerializeToString() for n in original.graph.node
    ]
    before = load(original).graph.initializers
    for name, entry in load(path).graph.initializers.items():  # statistics included
        same = np.array_equal(entry.const_value.numpy(), before[name].const_value.numpy())
        assert same == (name == "ratio"), name
    runtime: Any = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    logits = runtime.run(["logits"], held.arrays)[0]
    assert (logits.argmax(1) == held.arrays["t"]).mean() >= 0.98
    ours = session.evaluate(held.arrays, "logits")["logits"]
    np.testing.assert_allclose(ours, logits, rtol=1e-4, atol=1e-4)


def test_dropout_and_statistics_resume_bit_for_bit(tmp_path):
    data, _ = digits()
    feeds = list(data.epoch(64))[:8]
    with TrainingSession(cnn_op()) as whole, TrainingSession(cnn_op()) as other:
        for batch in feeds[:4]:
            whole.run(batch)
        whole.save(tmp_path / "c")
        other.restore(tmp_path / "c")
        for batch in feeds[4:]:
            first, second = whole.run(batch)["loss"], other.run(batch)["loss"]
            assert first == second
        expected = other.state_dict()
        for name, array in whole.state_dict().items():
            np.testing.assert_array_equal(array, expected[name], err_msg=name)


def test_two_seeds_drop_different_elements():
    data, _ = digits()
    batch = next(data.epoch(64))
    with TrainingSession(cnn_op(), seed=1) as first, TrainingSession(cnn_op(), seed=2) as second:
        assert first.run(batch)["loss"] != second.run(batch)["loss"]


STEPS, BATCH, LENGTH = 50, 8, 64


def text_session(numbers, vocabulary):
    proto = train_models.transformer(len(vocabulary), LENGTH)
    return proto, TrainingSession(minimize(copy.deepcopy(proto)), threads=1)


def test_a_transformer_learns_the_characters_of_a_text():
    numbers, vocabulary = train_models.text()
    _, session = text_session(numbers, vocabulary)
    with session:
        losses = [
            float(session.run(train_models.text_batch(numbers, i, BATCH, LENGTH))["loss"])
            for i in range(STEPS)
        ]
        weights = session.export().graph.initializers
    assert losses[0] == pytest.approx(math.log(len(vocabulary)), rel=0.05)
    assert np.mean(losses[-5:]) < 2.8
    assert "embedding" in weights  # one weight for both ends


def test_a_transformer_has_the_losses_that_it_has_in_pytorch():
    torch = pytest.importorskip("torch")
    import train_torch

    torch.set_num_threads(2)
    numbers, vocabulary = train_models.text()
    proto, session = text_session(numbers, vocabulary)
    weights = train_torch.weights_of(proto)
    optimizer = torch.optim.Adam(train_torch.parameters(weights), 1e-3)
    ours, theirs = [], []
    with session:
        for i in range(3 * STEPS):
            batch = train_models.text_batch(numbers, i, BATCH, LENGTH)
            ours.append(float(session.run(batch)["loss"]))
            optimizer.zero_grad()
            loss = train_torch.transformer(weights, *(torch.from_numpy(batch[n]) for n in "xt"))
            loss.backward()
            optimizer.step()
            theirs.append(loss.item())
    np.testing.assert_allclose(ours[:STEPS], theirs[:STEPS], rtol=0, atol=1e-4)
    assert np.mean(ours[-10:]) == pytest.approx(np.mean(theirs[-10:]), rel=0.01)


@pytest.mark.share(3)
@pytest.mark.parametrize("optimizer", ["GradientDescent", "Adam", "AdamW"])
def test_the_step_of_bert_base_has_few_nodes(optimizer):
    # Of bert-base's structure; its size changes no node.
    model = train_models.bert_base(size=24, vocabulary=50, length=16)
    step = build_step(minimize(model, getattr(amp.optimizers, optimizer)(1e-3)))
    # Forward, gradients and updates; the update of a variable is one call of a function.
    assert len(step.graph) <= 4 * len(model.graph.node)
    assert sum(len(f) for f in step.functions.values()) < 30
