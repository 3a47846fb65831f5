"""`amp-rewrite train-step`: losses, optimizers, variables and errors in words."""

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner
from handmade import CLASSIFIER, FORWARD, batch, model_of

import amp_rewrite as amp
from amp_rewrite.cli.command_table import command as command_called
from amp_rewrite.errors import AmpError, InvariantError
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.io.save import save
from amp_rewrite.training.step.build_step import step_model
from amp_rewrite.training.step.read_info import read_info

APP = command_called("train-step")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(model_of(FORWARD), "forward.onnx")
    onnx.save(onnx.parser.parse_model(CLASSIFIER), "classifier.onnx")
    return tmp_path


def command(*arguments, forward="forward.onnx", loss="loss"):
    given = [forward, "-o", "step.onnx", "--loss", loss, *arguments]
    result = CliRunner().invoke(APP, given)
    if isinstance(result.exception, AmpError):
        raise result.exception
    return result


def state_after_a_step(source, feeds):
    with amp.TrainingSession(source) as session:
        session.run(feeds)
        return session.state_dict()


def test_the_step_is_described_and_runs_on_a_plain_runtime():
    result = command()
    assert result.exit_code == 0
    assert "5 nodes -> " in result.stdout
    assert "feeds: x, t" in result.stdout
    assert "wrote step.onnx" in result.stdout
    onnx.checker.check_model("step.onnx", full_check=True)
    session: Any = onnxruntime.InferenceSession("step.onnx", providers=["CPUExecutionProvider"])
    assert np.isfinite(session.run(["loss"], batch(0))[0])


def test_an_invalid_step_is_not_written(folder, monkeypatch):
    def spoiled(*arguments):
        step = step_model(*arguments)
        next(node for node in step.graph if node.op_type == "MatMul").op_type = "MadeUp"
        return step

    monkeypatch.setattr("amp_rewrite.cli.train_step.step_model", spoiled)
    with pytest.raises(InvariantError, match=r"the rewritten model is not valid: .*MadeUp"):
        command()
    assert not (folder / "step.onnx").exists()


@pytest.mark.share(3)
@pytest.mark.parametrize(("opset", "mode"), [(23, 0), (23, 2), (24, 1), (24, 3)])
def test_attention_whose_scores_are_an_output_is_trained(folder, opset, mode):
    text = f"""<ir_version: 10, opset_import: ["" : {opset}]>
        g (float[2, 3, 8] x) => (float loss) <float[8, 8] w, int64[4] axes = {{0, 1, 2, 3}}> {{
            q = MatMul (x, w)
            a, k, v, s = Attention <q_num_heads = 2, kv_num_heads = 2, softcap = 2.0,
                qk_matmul_output_mode = {mode}> (q, x, q)
            t = Tanh (s)
            one = ReduceMean <keepdims = 0> (t, axes)
            two = ReduceMean <keepdims = 0> (a)
            loss = Add (one, two)
        }}"""
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    weights, x = (rng.normal(size=s).astype(np.float32) for s in ((8, 8), (2, 3, 8)))
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(model, "attention.onnx")
    rate = ("--optimizer", "sgd", "--learning-rate", "1")
    assert command(*rate, forward="attention.onnx").exit_code == 0
    moved = state_after_a_step("step.onnx", {"x": x})["w"] - weights

    def loss(share):
        model.graph.initializer[-1].CopyFrom(
            onnx.numpy_helper.from_array(weights + np.float32(share) * moved, "w")
        )
        session: Any = onnxruntime.InferenceSession(model.SerializeToString())
        return float(session.run(["loss"], {"x": x})[0])

    slope = (loss(0.01) - loss(-0.01)) / 0.02
    np.testing.assert_allclose(slope, -np.sum(moved.astype(np.float64) ** 2), rtol=0.03)


OPTIMIZERS = {
    "adam by default": ([], amp.optimizers.Adam()),
    "its options": (
        ["--option", "beta1=0.5", "--option", "lazy=true", "--learning-rate", "0.1"],
        amp.optimizers.Adam(0.1, 0.5, lazy=True),
    ),
    "sgd": (["--optimizer", "sgd"], amp.optimizers.GradientDescent()),
    "sgd with a momentum": (
        ["--optimizer", "sgd", "--option", "momentum=0.9", "--option", "nesterov=true"],
        amp.optimizers.Momentum(0.01, 0.9, use_nesterov=True),
    ),
    "with dashes": (["--optimizer", "gradient-descent"], amp.optimizers.GradientDescent()),
    "in capitals": (["--optimizer", "RMSProp"], amp.optimizers.RMSProp()),
    "named": (["--option", "name=Mine"], amp.optimizers.Adam(name="Mine")),
    "clipping": (["--option", "global-clipnorm=0.5"], amp.optimizers.Adam(global_clipnorm=0.5)),
}


@pytest.mark.share(7)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_words_give_the_optimizer_that_they_say(name):
    arguments, optimizer = OPTIMIZERS[name]
    assert command(*arguments).exit_code == 0
    expected = optimizer.minimize(amp.value(model_of(FORWARD), "loss"))
    found, same = (state_after_a_step(s, batch(0)) for s in ("step.onnx", expected))
    assert found.keys() == same.keys()
    for key, array in same.items():
        np.testing.assert_array_equal(found[key], array, err_msg=key)


LOSSES = {
    "softmax-cross-entropy:logits:t": (amp.losses.softmax_cross_entropy, "t"),
    "softmax_cross_entropy:logits:t": (amp.losses.softmax_cross_entropy, "t"),
    "softmax-cross-entropy:logits:label": (amp.losses.softmax_cross_entropy, "label"),
    "sigmoid-cross-entropy:logits:yes": (amp.losses.sigmoid_cross_entropy, "yes"),
    "mean-squared-error:logits:label:0": (amp.losses.mean_squared_error, "label:0"),
    "mean-absolute-error:logits:label": (amp.losses.mean_absolute_error, "label"),
    "huber:logits:label": (amp.losses.huber, "label"),
}


@pytest.mark.share(2)
@pytest.mark.parametrize("text", LOSSES)
def test_a_loss_is_added_and_its_labels_become_an_input(text):
    function, labels = LOSSES[text]
    assert command(forward="classifier.onnx", loss=text).exit_code == 0
    info = read_info(amp.load("step.onnx"))
    assert info.inputs == ("x", labels)
    accurate = text.startswith("softmax")
    assert info.targets == {"logits" if accurate else "predictions": "logits", "labels": labels}
    feeds = {"x": batch(0)["x"], labels: np.zeros((8, 3), np.float32)}
    if accurate:
        feeds[labels] = np.zeros(8, np.int64)
    model = amp.load("classifier.onnx")
    op = amp.optimizers.Adam().minimize(function(model, "logits", labels))
    with amp.TrainingSession("step.onnx") as first, amp.TrainingSession(op) as second:
        assert first.run(feeds)["loss"] == second.run(feeds)["loss"]


LOSS_OPTIONS = {
    "label-smoothing=0.1": {"label_smoothing": 0.1},
    "ignore_index=0": {"ignore_index": 0},
    "class-weights=[1, 2, 3]": {"class_weights": [1, 2, 3]},
    "reduction=sum": {"reduction": "sum"},
}


@pytest.mark.share(2)
@pytest.mark.parametrize("text", LOSS_OPTIONS)
def test_options_of_a_loss(text):
    loss = "softmax-cross-entropy:logits:t"
    assert command("--loss-option", text, forward="classifier.onnx", loss=loss).exit_code == 0
    feeds = {"x": batch(0)["x"], "t": np.arange(8) % 3}
    added = amp.losses.softmax_cross_entropy(
        amp.load("classifier.onnx"), "logits", "t", **LOSS_OPTIONS[text]
    )
    op = amp.optimizers.Adam().minimize(added)
    with amp.TrainingSession("step.onnx") as first, amp.TrainingSession(op) as second:
        assert first.run(feeds)["loss"] == second.run(feeds)["loss"]


def test_predictions_may_have_colons_in_their_name():
    model = onnx.load("classifier.onnx")
    model.graph.node[1].output[0] = model.graph.node[2].input[0] = "logits:0"
    model.graph.output[0].name = "logits:0"
    onnx.save(model, "classifier.onnx")
    command(forward="classifier.onnx", loss="softmax-cross-entropy:logits:0:t")
    targets = {"logits": "logits:0", "labels": "t"}
    assert read_info(amp.load("step.onnx")).targets == targets


@pytest.mark.parametrize(
    ("arguments", "trained"),
    [
        (["--freeze", "b"], {"w"}),
        (["--freeze", "w", "--unfreeze", "b"], {"b"}),
        ([], {"w", "b"}),
    ],
)
def test_frozen_variables_are_no_states(arguments, trained):
    command(*arguments)
    states = read_info(amp.load("step.onnx")).states
    assert {s.name for s in states if s.role == "variable"} == trained


def test_numbers_that_may_be_constants_of_a_formula_are_named():
    model = onnx.parser.parse_model(
        FORWARD.replace("float[2] b", "float[2] b, float epsilon = {0.5}").replace(
            "y = Add (h, b)", "k = Add (h, b)\n y = Add (k, epsilon)"
        )
    )
    model.graph.initializer.extend(onnx.load("forward.onnx").graph.initializer)
    del model.graph.value_info[:]
    onnx.save(model, "numbers.onnx")
    note = command(forward="numbers.onnx").stderr
    assert "note: 1 of 3 trained variables are single numbers (epsilon)" in note
    assert command("--freeze", "epsilon", forward="numbers.onnx").stderr == ""
    assert command("--quiet", forward="numbers.onnx").output == ""


def test_nothing_to_train_is_an_error():
    with pytest.raises(AmpError, match=r"No variables to optimize\."):
        command("--freeze", "*")


def test_values_are_fetched_besides_the_loss():
    command("--fetch", "y", "--fetch", "gradient_norm")
    step = amp.load("step.onnx")
    assert [str(v.name) for v in step.graph.outputs][:2] == ["loss", "y"]
    assert set(read_info(step).fetches) == {"loss", "y", "gradient_norm"}


WRONG = {
    "no such loss": (["--loss", "los"], "los: the model has no value .* did you mean 'loss'"),
    "no such kind": (["--loss", "softmax:y:t"], "unknown kind of loss; found 'softmax'"),
    "no labels": (["--loss", "mean-squared-error:y"], "names of two values"),
    "nothing": (["--loss", "mean-squared-error"], "names of two values"),
    "no such logits": (["--loss", "mean-squared-error:z:t"], "z: the model has no value"),
    "no scalar": (["--loss", "y"], r"must be a scalar; .* softmax-cross-entropy:y:LABELS"),
    "a loss without options": (["--loss-option", "axis=1"], "model itself takes no options"),
    "an option of no loss": (
        ["--loss", "huber:y:u", "--loss-option", "delt=1"],
        "huber takes no such option; found delt=1; expected KEY=VALUE, delta, reduction",
    ),
    "losses": (
        ["--loss", "huber:y:u", "--loss-option", "reduction=none"],
        "the loss must be a scalar",
    ),
    "integers": (["--loss", "softmax-cross-entropy:y:t"], "t: labels must be integers"),
    "optimizer": (["--optimizer", "adamm"], "optimizer identifier; found 'adamm'; expected sgd or"),
    "option": (["--option", "foo=3"], "adam takes no such option; found foo=3; expected KEY=VAL"),
    "no value": (["--option", "beta1"], "takes no such option"),
    "rate as option": (["--option", "learning_rate=1"], "takes no such option"),
    "word": (["--option", "beta1=x"], "'beta1' has no value that can be read; found x"),
    "range": (["--option", "beta1=2"], "impossible beta1; found 2;"),
    "nesterov": (["--optimizer", "sgd", "--option", "nesterov=true"], "needs a momentum"),
    "rate": (["--learning-rate", "nan"], "impossible learning_rate; found nan"),
    "no variable": (["--freeze", "z.*"], r"'z\.\*'"),
    "no pattern": (["--freeze", "re:["], "not a regular expression"),
    "no fetch": (["--fetch", "nope"], "computes no value 'nope'"),
    "input": (["-o", "forward.onnx"], "the output is the input"),
    "no folder": (["-o", "forward.onnx/step.onnx"], "the folder cannot be written"),
}


@pytest.mark.share(2)
@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_done_is_an_error_in_one_line_and_writes_nothing(case, folder):
    arguments, message = WRONG[case]
    before = sorted(folder.iterdir())
    with pytest.raises(AmpError, match=message) as caught:
        command(*arguments)
    assert "\n" not in str(caught.value)
    assert sorted(folder.iterdir()) == before


def test_a_step_is_no_model_to_make_a_step_of():
    command()
    with pytest.raises(AmpError, match=r"step\.onnx: the model is a training step already"):
        CliRunner().invoke(
            APP, ["step.onnx", "-o", "s.onnx", "--loss", "loss"], catch_exceptions=False
        )


def test_gradients_of_several_batches_make_an_update():
    command("--accumulate", "2")
    with amp.TrainingSession("step.onnx") as session:
        steps: list[int] = []
        for index in range(4):
            session.run(batch(index))
            steps.append(int(session.read_state("global_step")))
    assert steps == [0, 1, 1, 2]


def config_of(*options):
    command(*options)
    return read_info(load("step.onnx"))


def test_the_loss_scale_takes_options():
    info = config_of(
        *("--loss-scale", "dynamic", "--loss-scale-option", "increment-period=7"),
        *("--loss-scale-option", "floor=0.5", "--max-skips", "3"),
    )
    assert info.loss_scale is not None
    config = info.loss_scale["config"]
    assert (config["increment_period"], config["floor"]) == (7, 0.5)
    assert config["max_consecutive_skips"] == 3


@pytest.mark.parametrize("loss_scale", ["none", "64"])
def test_a_loss_scale_that_is_fixed_takes_no_options(loss_scale):
    with pytest.raises(AmpError, match="only a dynamic loss scale takes options"):
        command("--loss-scale", loss_scale, "--loss-scale-option", "floor=2")
