"""Real models that nobody made for training: with a loss added, they train by command."""

import gc

import numpy as np
import onnx
import onnxruntime
import pytest
from thinned import thinned

import amp_rewrite as amp
from amp_rewrite.cli.main import main

RNG = np.random.default_rng(0)
SENTENCES = RNG.integers(1000, 2000, (4, 8))
MODELS = {
    # opset 11, lengths called "?", weights in Constant nodes, statistics of the batch
    "ppocr_cls": (
        "softmax-cross-entropy:linear_1.tmp_1:t",
        ["--freeze", "fc_0*"],
        {"x": RNG.normal(size=(4, 3, 48, 192)).astype(np.float32), "t": np.array([0, 1, 1, 0])},
    ),
    # word embeddings (sparse gradients), attention, LayerNormalization in pieces; Adam's two slots
    # of 17 million weights would take 1.5 GiB
    "minilm_l3": (
        "mean-squared-error:onnx::Shape_422:t",
        ["--optimizer", "rmsprop"],
        {
            "input_ids": SENTENCES,
            "attention_mask": np.ones_like(SENTENCES),
            "t": RNG.normal(size=(*SENTENCES.shape, 384)).astype(np.float32),
        },
    ),
    # two LSTMs of known length, which are trained in unrolled form
    "oww_hey_mycroft": (
        "mean-squared-error:dense:t",
        ["--optimizer", "sgd", "--option", "momentum=0.9", "--learning-rate", "0.01"],
        {
            "input_1": RNG.normal(size=(4, 16, 96)).astype(np.float32),
            "t": np.ones((4, 1), np.float32),
        },
    ),
}


def command(*arguments):
    with pytest.raises(SystemExit) as end:
        main(list(map(str, arguments)))
    assert end.value.code == 0
    gc.collect()  # the model of this command, before the next one begins


def operators(model):
    return [n.op_type for n in model.graph.node if n.op_type != "Constant"]


@pytest.mark.parametrize("name", thinned(MODELS, lambda name: name != "ppocr_cls"))
def test_a_real_model_learns_a_batch_by_heart(corpus, name, tmp_path, monkeypatch, capsys):
    loss, options, data = MODELS[name]
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", **data)
    path = corpus.path(name)
    command("train-step", path, "-o", "step.onnx", "--loss", loss, *options)
    command("train", "step.onnx", "--data", "data.npz", "--batch", 4, "--epochs", 8,
            "--metrics", "m.csv", "-o", "trained.onnx")  # fmt: skip
    losses = [float(row.split(",")[3]) for row in (tmp_path / "m.csv").read_text().split()[1:]]
    assert losses[-1] < 0.8 * losses[0]
    trained, original = (onnx.load(p, load_external_data=False) for p in ("trained.onnx", path))
    assert operators(trained) == operators(original)
    assert trained.opset_import == original.opset_import
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    onnxruntime.InferenceSession("trained.onnx", options, providers=["CPUExecutionProvider"])


def test_a_recurrent_model_trains_on_sequences_of_any_length(corpus):
    model = amp.load(corpus.path("silero_v6_sequence"))
    loss = amp.losses.mean_squared_error(model, "speech_probs", "t")
    zeros = np.zeros((1, 1, 128), np.float32)
    sequences = [RNG.normal(size=(n, 576)).astype(np.float32) / 10 for n in (3, 7, 1, 5)]
    losses = []
    with amp.TrainingSession(amp.optimizers.Adam().minimize(loss), threads=1) as session:
        for x in sequences * 4:
            feeds = {"input": x, "h": zeros, "c": zeros, "t": np.ones(len(x), np.float32) / 2}
            losses.append(float(session.run(feeds)["loss"]))
    assert sum(losses[-4:]) < 0.2 * sum(losses[:4])
