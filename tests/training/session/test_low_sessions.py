"""Sessions of steps in float16 and bfloat16: fetches, evaluation, checkpoints, the global state."""

import numpy as np
import pytest
from low_steps import LOW, NETWORKS, batch, low_nodes, train_op
from onnx import parser

import amp_rewrite as amp
from amp_rewrite.errors import OptionError, StepError
from amp_rewrite.training.global_state import global_state
from amp_rewrite.training.session.training_session import TrainingSession
from amp_rewrite.training.step.build_step import build_step
from amp_rewrite.training.step.cut_step import values_by_name
from amp_rewrite.training.step.precision import in_precision
from amp_rewrite.training.step.step import read_step, whole_step

pytestmark = pytest.mark.filterwarnings("ignore:a float16 step without a loss scale")


@pytest.fixture(autouse=True)
def _reset():
    yield
    global_state.reset()


def test_fetches_of_low_values_are_float32_with_the_numbers_of_the_low_type():
    feeds = batch("mlp")
    with TrainingSession(train_op("mlp"), precision="float16", emulate=True) as session:
        hidden = session.run(feeds, "Relu_1")["Relu_1"]
        again = session.evaluate(feeds, ["Relu_1", "logits"])["Relu_1"]
    assert hidden.dtype == again.dtype == np.float32
    assert hidden.any()
    np.testing.assert_array_equal(hidden, hidden.astype(np.float16).astype(np.float32))


@pytest.mark.share(3)
@pytest.mark.parametrize("network", NETWORKS)
def test_evaluation_of_a_low_step_is_that_of_the_float32_step(network):
    feeds = batch(network)
    with (
        TrainingSession(train_op(network)) as exact,
        TrainingSession(train_op(network), precision="float16", emulate=True) as low,
    ):
        expected = exact.evaluate(feeds, ["loss", "logits"])
        found = low.evaluate(feeds, ["loss", "logits"])
    np.testing.assert_allclose(found["loss"], expected["loss"], rtol=5e-3)
    np.testing.assert_allclose(found["logits"], expected["logits"], rtol=0.02, atol=0.02)


def test_dropout_is_removed_where_it_reads_float32_and_writes_float16():
    text = """<ir_version: 8, opset_import: ["": 17]>
        g (float[N, 4] x) => (float loss)
        <float[4, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
         float half = {0.5}> {
            a = MatMul (x, w)
            e = Exp (a)
            r = Identity (e)
            d = Dropout (r, half)
            c = MatMul (d, w)
            loss = ReduceMean <keepdims: int = 0> (c)
        }"""
    feeds = {"x": np.full((2, 4), 0.01, np.float32)}
    with TrainingSession(
        train_op(parser.parse_model(text)), precision="float16", emulate=True
    ) as session:
        found = session.evaluate(feeds, ["loss", "c"])
        session.run(feeds)
    w = np.arange(1, 17, dtype=np.float32).reshape(4, 4)
    np.testing.assert_allclose(found["c"], np.exp(feeds["x"] @ w) @ w, rtol=2e-3)


@pytest.mark.share(2)
@pytest.mark.parametrize("precision", LOW)
def test_checkpoints_of_one_precision_restore_in_another(precision, tmp_path):
    with TrainingSession(train_op("cnn", "if")) as exact:
        exact.run(batch("cnn"))
        exact.save(tmp_path / "c")
        expected = exact.state_dict()
    with TrainingSession(train_op("cnn", "if"), precision=precision, emulate=True) as low:
        low.restore(tmp_path / "c")
        for name, array in low.state_dict().items():
            np.testing.assert_array_equal(array, expected[name], err_msg=name)
        low.run(batch("cnn"))
        exported = low.export()
        state = low.state_dict()
    weight = exported.graph.initializers["conv1.weight"].const_value.numpy()
    np.testing.assert_array_equal(weight, state["conv1.weight"])


def test_a_rewritten_step_stays_as_it_is_and_refuses_another_precision():
    step = build_step(train_op(), precision="float16")
    assert read_step(step).info.precision == "float16"
    for wanted in (None, "float16"):
        with TrainingSession(step, precision=wanted, emulate=True) as session:
            assert session.info.precision == "float16"
            assert "loss" in session.run(batch())
    for wanted in ("bfloat16", "float32"):
        with pytest.raises(StepError, match=r"rewritten already.*found float16.*build the step"):
            TrainingSession(step, precision=wanted)


@pytest.mark.parametrize("wanted", ["float64", "float8", ""])
def test_an_unknown_precision_is_refused(wanted):
    with pytest.raises(OptionError, match=r"unknown precision.*float32.*float16.*bfloat16"):
        build_step(train_op(), precision=wanted)
    with pytest.raises(OptionError, match="unknown precision"):
        TrainingSession(train_op(), precision=wanted)


@pytest.mark.parametrize("precision", LOW)
def test_new_steps_follow_the_graph_rewrite_until_it_is_disabled(precision):
    unrewritten = build_step(train_op())
    model = amp.load(NETWORKS["mlp"]())
    optimizer = amp.enable_mixed_precision_graph_rewrite(
        amp.optimizers.Adam(1e-3), precision=precision
    )
    op = optimizer.minimize(amp.value(model, "loss"))
    assert read_step(build_step(op)).info.precision == precision
    assert read_step(build_step(op, precision="float32")).info.precision == "float32"
    for source in (op, unrewritten):
        with TrainingSession(source, emulate=True) as session:
            assert session.info.precision == precision
    amp.disable_mixed_precision_graph_rewrite()
    assert read_step(build_step(op)).info.precision == "float32"


def test_a_step_takes_the_options_of_a_rewrite():
    options = amp.RewriteOptions(precision="bfloat16", target="schema")
    everything = low_nodes(build_step(train_op(), options=options), "bfloat16")
    first = next(str(n.name) for n in everything if n.op_type in ("MatMul", "Gemm"))
    step = build_step(train_op(), options=options, deny_nodes=[first])
    assert read_step(step).info.precision == "bfloat16"
    assert {n.name for n in everything} - {n.name for n in low_nodes(step, "bfloat16")} >= {first}
    chosen = build_step(train_op(), precision="float16", options=options)
    assert read_step(chosen).info.precision == "float16"


def test_a_step_refuses_options_that_it_cannot_have():
    with pytest.raises(OptionError, match=r"a step keeps the types.* found keep_io_types=False"):
        build_step(train_op(), precision="float16", keep_io_types=False)
    with pytest.raises(OptionError, match="unknown keyword; found level_; expected 'level'"):
        build_step(train_op(), level_="default")  # pyright: ignore[reportCallIssue]


@pytest.mark.share(2)
@pytest.mark.parametrize("network", ["cnn", "transformer"])
def test_emulating_a_float32_step_changes_nothing(network):
    feeds = batch(network)
    with (
        TrainingSession(train_op(network)) as plain,
        TrainingSession(train_op(network), emulate=True) as emulated,
    ):
        for _ in range(2):
            assert plain.run(feeds)["loss"] == emulated.run(feeds)["loss"]


@pytest.mark.share(2)
@pytest.mark.parametrize("network", ["cnn", "transformer"])
def test_every_value_of_a_low_step_can_be_fetched(network):
    feeds = batch(network)
    op = train_op(network, "if")
    step = in_precision(whole_step(op), "float16")
    names = sorted({*step.info.fetches, *values_by_name(step.model.graph)})
    with TrainingSession(op, precision="float16", emulate=True) as session:
        together = session.run(feeds, names)
    assert len(names) > 100
    assert not {array.dtype for array in together.values()} & {np.dtype(np.float16)}
    assert np.isfinite(together["loss"])
