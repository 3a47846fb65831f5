"""error_budget: contributions against single roundings, and totals against emulated models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import amp_rewrite as amp
from amp_rewrite import targets
from amp_rewrite.dtypes import LOW
from amp_rewrite.errors import DataError, GradientError, OptionError
from amp_rewrite.numerics.emulate import evaluate
from amp_rewrite.numerics.emulate.low_sums import kept_low

Feeds = dict[str, Any]


def with_weights(text: str, seed: int = 0, **shapes: Sequence[int]) -> onnx.ModelProto:
    """Return a model with random weights of some shapes."""
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(seed)
    for name, shape in shapes.items():
        weight = (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    return model


MLP = with_weights(
    """<ir_version: 8, opset_import: ["" : 17]> g (float[B,32] x) => (float[B,16] y) {
    [a] h = MatMul(x, w) [b] r = Tanh(h) [c] m = Mul(r, r) [d] y = MatMul(m, v) }""",
    w=(32, 64),
    v=(64, 16),
)
BRANCHES = with_weights(
    """<ir_version: 8, opset_import: ["" : 17]> g (float[8,8] x, bool c) => (float[8,8] y) {
    [a] h = MatMul(x, w)
    [if] i = If(c) <then_branch = t () => (float[8,8] p) {
                      [in] q = MatMul(h, v) [out] p = Tanh(q) },
                    else_branch = e () => (float[8,8] s) { s = Identity(h) }>
    [z] y = MatMul(i, v) }""",
    w=(8, 8),
    v=(8, 8),
)
LOOP = with_weights(
    """<ir_version: 8, opset_import: ["" : 17]> g (float[8,8] x) => (float[8,8] y)
    <int64 n = {3}, bool go = {1}> {
    [loop] h = Loop(n, go, x) <body = b (int64 i, bool c, float[8,8] s) => (bool d, float[8,8] t) {
      d = Identity(c) [in] u = MatMul(s, w) [out] t = Tanh(u) }>
    [z] y = MatMul(h, v) }""",
    w=(8, 8),
    v=(8, 8),
)


def feeds_of(model: onnx.ModelProto, seed: int = 1) -> Feeds:
    rng = np.random.default_rng(seed)
    fed: Feeds = {}
    for value in model.graph.input:
        shape = [d.dim_value or 16 for d in value.type.tensor_type.shape.dim]
        is_bool = value.type.tensor_type.elem_type == onnx.TensorProto.BOOL
        fed[value.name] = np.array(True) if is_bool else rng.standard_normal(shape, np.float32)
    return fed


def relative(one: Any, other: Any) -> float:
    return float(np.linalg.norm(other - one) / (np.std(one) * np.sqrt(one.size)))


@pytest.mark.parametrize("model", [MLP, BRANCHES, LOOP], ids=["mlp", "if", "loop"])
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
@pytest.mark.parametrize("target", ["cuda", "webgpu"])
def test_the_predicted_error_is_that_of_an_emulated_model(
    model: onnx.ModelProto, precision: Any, target: Any
) -> None:
    if (precision, target) == ("bfloat16", "webgpu"):
        target = "schema"
    fed = feeds_of(model)
    options: dict[str, Any] = {"precision": precision, "target": target, "keep_io_types": True}
    budget = amp.error_budget(model, [fed], draws=32, **options)
    low = amp.rewrite(model, **options).model
    sums = kept_low(targets.find(target), LOW[precision])
    found = evaluate(low, fed, accumulate_low=sums)["y"]
    actual = relative(evaluate(model, fed)["y"], found)
    assert actual > 0
    assert 0.5 < budget.predicted["y"] / actual < 2
    assert budget.unreached.keys() == ({"s"} if model is BRANCHES else set())


@pytest.mark.parametrize("denied", [(), ("out",)])
def test_both_branches_are_measured_where_batches_take_both(denied: tuple[str, ...]) -> None:
    fed = [feeds_of(BRANCHES) | {"c": np.array(taken)} for taken in (True, False)]
    budget = amp.error_budget(BRANCHES, fed, draws=32, deny_nodes=denied, keep_io_types=True)
    low = amp.rewrite(BRANCHES, deny_nodes=denied, keep_io_types=True).model
    pairs = [(evaluate(BRANCHES, each)["y"], evaluate(low, each)["y"]) for each in fed]
    assert 0.5 < budget.predicted["y"] / max(relative(*pair) for pair in pairs) < 2
    assert budget.unreached == {}


@pytest.mark.parametrize("both", [True, False])
def test_what_a_float32_node_gives_to_a_16_bit_if_is_rounded(both: bool) -> None:
    fed = [feeds_of(BRANCHES) | {"c": np.array(taken)} for taken in (True, not both)]
    budget = amp.error_budget(BRANCHES, fed, deny_nodes=["out"])
    found = {each.value: each for each in budget.contributions}
    assert found["p"].rounded
    assert found["p"].largest > 1e-5


def test_a_contribution_is_what_rounding_that_value_alone_brings() -> None:
    fed = feeds_of(MLP)
    budget = amp.error_budget(MLP, [fed], draws=256)
    found = {each.value: each for each in budget.contributions}
    values = evaluate(MLP, fed, outputs=["h", "r", "m", "y"])
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in MLP.graph.initializer}

    def low(array: Any) -> Any:
        return array.astype(np.float16).astype(np.float32)

    by_hand = {
        "r": low(values["r"]) ** 2 @ weights["v"],
        "m": low(values["m"]) @ weights["v"],
        "h": np.tanh(low(fed["x"] @ low(weights["w"]))) ** 2 @ weights["v"],
        "y": low(values["m"] @ low(weights["v"])),
    }
    for name, array in by_hand.items():
        # it is the larger one of two estimates
        assert 0.8 < found[name].errors["y"] / relative(values["y"], array) < 1.6, name
    assert found["h"].peak == pytest.approx(np.abs(values["h"]).max())
    assert (found["h"].node, found["h"].op) == ("a", "MatMul")


def test_it_goes_by_the_worst_batch_and_takes_late_ones() -> None:
    rng = np.random.default_rng(0)
    quiet: list[Feeds] = [
        {"x": rng.standard_normal((16, 32)).astype(np.float32) * 1e-3} for _ in range(20)
    ]
    loud = [*quiet, {"x": rng.standard_normal((16, 32)).astype(np.float32)}]
    one, other = (amp.error_budget(MLP, fed).contributions for fed in (quiet, loud))
    peaks = [max(each.peak for each in found if each.value == "h") for found in (one, other)]
    assert peaks[1] > 100 * peaks[0]


@pytest.mark.parametrize("moved", ["h", "k"])
def test_what_a_16_bit_reader_rounds_is_not_rounded_as_an_output(moved: str) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[8,32] x) => (float[8,32] %s, float[8,16] y) <int64[2] s = {8, 32}> {
    [a] r = MatMul(x, w) [b] h = Tanh(r) [c] k = Reshape(h, s) [d] y = MatMul(k, v) }"""
    model = with_weights(text % moved, w=(32, 32), v=(32, 16))
    budget = amp.error_budget(model, feeds_of(model), deny_nodes=["a", "b", "c"])
    assert budget.predicted[moved] == 0
    assert 1e-5 < budget.predicted["y"] < 1e-3
    low = amp.error_budget(model, feeds_of(model), level="UNSAFE_FORCE_ALL")
    assert low.predicted[moved] > 1e-4


def test_an_output_in_16_bits_is_rounded() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[8,32] x) => (float[8,32] h, float[8,16] y) {
    [a] r = MatMul(x, w) [b] h = Tanh(r) [d] y = MatMul(h, v) }"""
    model = with_weights(text, w=(32, 32), v=(32, 16))
    mixed = amp.rewrite(model, deny_nodes=["a", "b"], keep_io_types=False).model
    assert amp.error_budget(model, feeds_of(model), rewritten=mixed).predicted["h"] > 1e-4


def test_what_decides_by_an_output_is_not_left_out() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[8,32] x) => (float[8,32] h, float[8,32] p) {
    [a] h = MatMul(x, w) [b] p = Softmax(h) }"""
    model = with_weights(text, w=(32, 32))
    budget = amp.error_budget(model, feeds_of(model), deny_nodes=["a"], allow_ops=["Softmax"])
    assert budget.predicted["h"] > 0


@pytest.mark.parametrize("places", [(0,), (3,), (0, 1, 2)])
def test_batches_on_which_the_original_is_not_finite_do_not_count(places: tuple[int, ...]) -> None:
    feeds = [feeds_of(MLP, seed) for seed in range(4)]
    expected = amp.error_budget(MLP, [f for k, f in enumerate(feeds) if k not in places])
    for k in places:
        feeds[k]["x"][0, 0] = np.nan
    found = amp.error_budget(MLP, feeds)
    assert found.predicted == pytest.approx(expected.predicted, rel=0.3)
    assert amp.tune(MLP, feeds, rtol=0.01).holds
    with pytest.raises(DataError, match="no batch says what rounding adds; found the original giv"):
        amp.error_budget(MLP, [feeds[k] for k in places])


def test_an_offset_does_not_hide_an_error() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,64] x) => (float[1,64] y)'
        "<float[1] k = {300}> { [a] h = Sigmoid(x) [b] y = Add(h, k) }"
    )
    fed = {"x": np.linspace(-2, 2, 64, dtype=np.float32)[None]}
    budget = amp.error_budget(model, [fed], target="schema", allow_nodes=["*"])
    assert budget.predicted["y"] > 0.1


def test_what_decides_is_measured_by_its_gap() -> None:
    model = with_weights(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[8,16] x)
        => (int64[8,1] i, float[8,4] y)
        { [a] h = MatMul(x, w) [top] i = ArgMax<axis = 1>(h) [b] y = MatMul(x, v) }""",
        w=(16, 6),
        v=(16, 4),
    )
    budget = amp.error_budget(model, [feeds_of(model)])
    found = {each.value: each for each in budget.contributions}
    assert found["h"].decisions > 0
    assert found["h"].errors == {"y": 0.0}
    assert found["y"].decisions == 0


def test_the_budget_as_text_and_as_json() -> None:
    budget = amp.error_budget(MLP, [feeds_of(MLP)])
    lines = budget.lines(2)
    assert lines[0].startswith("output y: predicted error 0.0")
    assert lines[1].endswith("of the error of output y")
    assert len(lines) == 3
    form = budget.to_dict()
    assert form["predicted"] == dict(budget.predicted)
    assert {each["value"] for each in form["contributions"]} == {"x", "h", "r", "m", "y"}
    shares = [share for share, _, _ in budget.shares()]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1, abs=0.01)


def test_what_no_gradient_reaches_is_said() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y)'
        "{ h = Floor(x) y = Add(h, x) }"
    )
    fed = {"x": np.linspace(-2, 2, 4, dtype=np.float32)}
    budget = amp.error_budget(model, [fed], target="schema", allow_nodes=["*"])
    assert "x" not in budget.unreached


def test_sequences_and_old_opsets_and_no_elements() -> None:
    sequences = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[4,4] x, seq(float[4,4]) s)
        => (float[4,4] y, seq(float[4,4]) t) <int64 i = {0}> {
          h = MatMul(x, x) e = SequenceAt(s, i) y = Add(h, e) t = SequenceInsert(s, h) }"""
    )
    x = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    fed: Feeds = {"x": x, "s": [x, x]}
    assert amp.error_budget(sequences, [fed]).predicted["y"] > 0
    assert not amp.convert(sequences, [fed], rtol=1e-7).is_low
    old = onnx.parser.parse_model(
        '<ir_version: 4, opset_import: ["" : 9]> g (float[4,4] x) => (float[4,4] y)'
        "{ y = Sigmoid(x) }"
    )
    assert amp.error_budget(old, [{"x": x}], allow_nodes=["*"]).predicted["y"] > 0
    nothing = {"x": np.zeros((0, 32), np.float32)}
    assert amp.error_budget(MLP, [nothing]).contributions


def test_wrong_input_is_refused() -> None:
    with pytest.raises(DataError, match="hold no batch"):
        amp.error_budget(MLP, [])
    with pytest.raises(OptionError, match="draws"):
        amp.error_budget(MLP, [feeds_of(MLP)], draws=0)
    integers = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (int64[4] x) => (int64[4] y) { y = Add(x, x) }'
    )
    with pytest.raises(GradientError, match="no output has gradients"):
        amp.error_budget(integers, [{"x": np.arange(4)}])
    low = amp.rewrite(MLP).model
    with pytest.raises(OptionError, match="a rewritten model is given"):
        amp.error_budget(MLP, [feeds_of(MLP)], rewritten=low, precision="bfloat16")


def test_weights_of_old_opsets_with_axes_as_attributes() -> None:
    model = with_weights(
        """<ir_version: 8, opset_import: ["" : 11]> g (float[B,8] x) => (float[B,8] y) {
        [u] w2 = Unsqueeze<axes = [0]>(w) [s] w3 = Squeeze<axes = [0]>(w2)
        [a] h = Add(x, w3) [b] d, m = Dropout<ratio = 0.5>(h) [c] y = MatMul(d, v) }""",
        w=(8,),
        v=(8, 8),
    )
    fed = feeds_of(model)
    budget = amp.error_budget(model, [fed], draws=64, keep_io_types=True)
    found = evaluate(amp.rewrite(model, keep_io_types=True).model, fed)["y"]
    actual = relative(evaluate(model, fed)["y"], found)
    assert 0.5 < budget.predicted["y"] / actual < 2


@pytest.mark.parametrize("outputs", [1, 4, 8])
def test_of_few_elements_the_error_is_exact(outputs: int) -> None:
    model = with_weights(
        f"""<ir_version: 8, opset_import: ["" : 17]> g (float[1,32] x) => (float[1,{outputs}] y) {{
        [a] h = MatMul(x, w) [b] r = Tanh(h) [d] y = MatMul(r, v) }}""",
        w=(32, 64),
        v=(64, outputs),
    )
    fed = feeds_of(model)
    found = {
        each.value: each for each in amp.error_budget(model, [fed], target="schema").contributions
    }
    values = evaluate(model, fed, outputs=["r", "y"])
    weight = onnx.numpy_helper.to_array(model.graph.initializer[1])
    errors = values["r"].astype(np.float16).astype(np.float32) - values["r"]
    each = errors.T * weight
    squares = np.maximum(each.sum(axis=0) ** 2, (each**2).sum(axis=0)).mean()
    expected = np.sqrt(squares) / np.sqrt(np.mean(values["y"] ** 2))
    assert found["r"].errors["y"] == pytest.approx(float(expected), rel=1e-3)


@pytest.mark.parametrize("rows", [1, 8])
def test_each_output_of_few_elements_is_exact_by_itself(rows: int) -> None:
    model = with_weights(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[B,32] x)
        => (float[B,1] y, float[B,16] z) {
        [a] h = MatMul(x, w) [b] r = Tanh(h) [d] y = MatMul(r, v) [e] z = MatMul(r, u) }""",
        w=(32, 64),
        v=(64, 1),
        u=(64, 16),
    )
    fed = {"x": np.random.default_rng(2).standard_normal((rows, 32), np.float32)}
    one, other = (
        {c.value: c.errors for c in amp.error_budget(model, [fed], draws=n).contributions}
        for n in (4, 16)
    )
    same = [one[v]["y"] == pytest.approx(other[v]["y"], rel=1e-4) for v in ("h", "r")]
    assert all(same) == (rows == 1)
    assert one["h"]["z"] != pytest.approx(other["h"]["z"], rel=1e-4)
