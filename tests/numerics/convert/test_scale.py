"""Values beyond the range of float16 stay in it, times powers of two that constants take."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper, numpy_helper
from residual_models import (
    ACTIVATIONS,
    NORMS,
    residual_decoder,
    residual_feeds,
)

import amp_rewrite as amp
from amp_rewrite.numerics.convert import scale
from amp_rewrite.numerics.convert.scale import LARGEST_DIFFERENCE
from amp_rewrite.numerics.emulate.evaluator import Evaluator


def converted(model: onnx.ModelProto, **options: Any) -> amp.Conversion:
    return amp.convert(model, [residual_feeds()], stress=False, **options)


def low_nodes(found: amp.Conversion) -> int:
    return found.report.summary.nodes_converted


@pytest.fixture(scope="module")
def decoder() -> onnx.ModelProto:
    return residual_decoder(2)


@pytest.fixture(scope="module")
def scaled(decoder: onnx.ModelProto) -> amp.Conversion:
    return converted(decoder)


def test_a_residual_stream_is_float16_as_a_whole(decoder: onnx.ModelProto, scaled: amp.Conversion):
    assert scaled.ok
    assert scaled.report.summary.casts_added == 2
    assert low_nodes(scaled) == scaled.report.summary.float_nodes == len(decoder.graph.node)
    weights = amp.to_proto(scaled.model).graph.initializer
    assert {t.data_type for t in weights} == {onnx.TensorProto.FLOAT16}


COSINE = 0.9995


def made_of(model: onnx.ModelProto, dtype: Any, **options: Any) -> amp.Conversion | amp.Repair:
    """Convert a float32 model, repair a float16 one, on data."""
    if dtype is np.float32:
        return converted(model, **options)
    return amp.repair(model, [residual_feeds(dtype)], **options)


def worst_cosine(found: amp.Conversion | amp.Repair) -> float:
    assert found.verification is not None
    return min(output.cosine or 0.0 for output in found.verification.outputs)


def operators(model: onnx.ModelProto) -> Counter[str]:
    return Counter(n.op_type for n in model.graph.node)


def float32_operators(found: amp.Conversion | amp.Repair) -> set[str]:
    if isinstance(found, amp.Repair):
        return {danger.op for danger in found.dangers}
    nodes = found.report.nodes
    return {n.op for n in nodes for v in n.variables.values() if v.dtype == "float32"}


def check_stream(model: onnx.ModelProto, norm: str, dtype: Any, target: Any) -> None:
    """Check that nothing of a stream is float32 but a norm that is written out."""
    found = made_of(model, dtype, target=target)
    ends = {"Cast": 2} if dtype is np.float32 else {}
    assert found.verification is not None
    assert found.verification.ok
    assert worst_cosine(found) >= COSINE
    if norm == "written":
        assert float32_operators(found) <= {"Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul"}
        return
    assert operators(amp.to_proto(found.model)) == operators(model) + Counter(ends)
    assert not [t for t in amp.to_proto(found.model).graph.initializer if t.data_type == 1]


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cuda", "webgpu"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("layers", [8, 24])
@pytest.mark.parametrize("activation", ACTIVATIONS[:3])
@pytest.mark.parametrize("norm", NORMS)
def test_a_residual_stream_is_float16_but_for_norms_that_are_written_out(
    norm: str, activation: str, layers: int, dtype: Any, target: Any
):
    model = residual_decoder(layers, norm=norm, activation=activation, peak=4e5, dtype=dtype)
    check_stream(model, norm, dtype, target)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_norm_that_is_written_out_keeps_its_own_arithmetic_in_float32(dtype: Any):
    model = residual_decoder(8, norm="written", dtype=dtype)
    found = made_of(model, dtype)
    proto = onnx.shape_inference.infer_shapes(amp.to_proto(found.model))
    types = {v.name: v.type.tensor_type.elem_type for v in proto.graph.value_info}
    stream = [n for n in proto.graph.node if n.op_type in ("MatMul", "Relu")]
    inner = {n.output[0] for n in stream if n.output[0] in types}
    assert {types[name] for name in inner} == {onnx.TensorProto.FLOAT16}
    adds = [n for n in proto.graph.node if n.op_type == "Add"]
    assert sum(types[n.output[0]] == onnx.TensorProto.FLOAT16 for n in adds) == 16


@pytest.mark.share(5, each="norm")
@pytest.mark.arm64
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("norm", NORMS)
def test_a_scaled_stream_is_right_in_real_float16(norm: str, dtype: Any, arm64: Any):
    model = residual_decoder(8, norm=norm, activation="relu2", peak=4e5, dtype=dtype)
    found = made_of(model, dtype, target="cpu-arm64")
    feeds = residual_feeds(dtype)
    made = arm64(found.model).run(feeds)["y"]
    wide = amp.widen(model).model if dtype is np.float16 else model
    expected = Evaluator(wide, emulate=False).run(feeds)["y"]
    x, y = (np.asarray(a, np.float64).ravel() for a in (made, expected))
    assert x @ y / (np.linalg.norm(x) * np.linalg.norm(y)) >= COSINE


def test_the_report_says_what_was_scaled_and_what_that_saves(scaled: amp.Conversion):
    scaling = scaled.report.scaling
    assert scaling is not None
    (stream,) = scaling.sets
    assert (stream.first, stream.exponent, stream.constants) == ("v0", -5, 5)
    assert stream.largest == pytest.approx(3.6e5, rel=1e-3)
    assert stream.after == stream.largest / 32
    assert set(stream.values.values()) == {-5}
    assert scaling.casts_saved > 0
    assert scaling.variables_saved > 0
    text = scaled.report.to_text()
    assert "from v0 on by 2^-5" in text
    saved = f"{scaling.variables_saved} float32 type variables and {scaling.casts_saved} casts"
    assert f"scaling saves {saved}" in text
    assert scaled.report.to_dict()["scaling"]["sets"][0]["exponent"] == -5


def test_what_the_model_gives_is_not_scaled_and_stays_float32():
    model = residual_decoder(2)
    stream = [n.output[0] for n in model.graph.node if n.op_type == "Add"][-1]
    model.graph.output.append(helper.make_tensor_value_info(stream, 1, ["N", 64]))
    kept, found = converted(model, overflow="keep"), converted(model)
    assert found.result.scaling is None
    assert low_nodes(found) == low_nodes(kept)
    assert f"{stream} is an output of the model" in found.report.to_text().replace("\n", " ")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_scale_adds_a_mul_where_an_output_ends_a_set_and_auto_adds_none(dtype: Any):
    model = residual_decoder(8, dtype=dtype, peak=4e5)
    stream = [n.output[0] for n in model.graph.node if n.op_type == "Add"][1]
    number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model.graph.output.append(helper.make_tensor_value_info(stream, number, ["N", 64]))
    auto, found = (made_of(model, dtype, overflow=o) for o in ("auto", "scale"))
    kinds = operators(amp.to_proto(auto.model)) - Counter(Cast=99)
    assert kinds == operators(model)
    made = amp.to_proto(found.model)
    assert 1 <= operators(made)["Mul"] <= 3
    assert operators(made)["Cast"] < operators(amp.to_proto(auto.model))["Cast"] / 2
    assert found.verification is not None
    assert found.verification.ok
    original = amp.widen(model).model if dtype is np.float16 else model
    assert amp.verify(original, made, [residual_feeds()], stress=False).ok


@pytest.fixture(scope="module")
def bounded() -> onnx.ModelProto:
    """Return a decoder of which bounds tell that it leaves the range."""
    model = residual_decoder(2)
    biases = [t for t in model.graph.initializer if tuple(t.dims) == (64,)]
    for tensor in biases:  # scales of norms that make everything large
        if numpy_helper.to_array(tensor).max() < 10:
            tensor.CopyFrom(numpy_helper.from_array(np.full(64, 3e5, np.float32), tensor.name))
    return model


def test_bounds_alone_show_an_overflow(bounded: onnx.ModelProto):
    kept, found = amp.rewrite(bounded), amp.rewrite(bounded, overflow="scale")
    assert found.scaling is not None
    assert found.report.summary.nodes_converted > kept.report.summary.nodes_converted
    assert found.report.summary.casts_added <= kept.report.summary.casts_added


def test_without_data_the_proof_runs_on_inputs_that_are_made_up(bounded: onnx.ModelProto):
    found = amp.convert(bounded, overflow="scale", stress=False)
    scaling = found.report.scaling
    assert scaling is not None
    assert scaling.proof is not None
    assert scaling.proof.difference <= LARGEST_DIFFERENCE
    assert scaling.proof.batches > 0
    assert any(line.startswith("scaling proved: in float32 ") for line in scaling.lines())


def test_a_scaled_model_that_computes_something_else_is_not_taken(
    bounded: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(scale, "LARGEST_DIFFERENCE", -1.0)
    found = amp.convert(bounded, overflow="scale", stress=False)
    assert found.result.scaling is None


def with_edited(shape: tuple[int, ...], edit: Any) -> onnx.ModelProto:
    """Return a decoder with one constant edited: a bias of the stream, or the first weights."""
    model = residual_decoder(2)
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor).copy()
        if array.shape == shape and (array.ndim == 2 or array.max() > 1e4):
            tensor.CopyFrom(numpy_helper.from_array(edit(array), tensor.name))
            break
    return model


def put(number: float) -> Any:
    """Return an edit that puts a number among the elements of a constant."""

    def edit(array: Any) -> Any:
        array.reshape(-1)[7] = number
        return array

    return edit


BAD = {
    "NaN": (with_edited((64,), put(np.nan)), "the constant w4 holds NaN"),
    "infinity": (with_edited((64,), put(-np.inf)), "the constant w4 holds infinite numbers"),
    "a tiny number": (
        with_edited((64,), put(1e-38)),
        "the constant w4 would leave the range of float32",
    ),
    "small weights": (
        with_edited((32, 64), lambda array: array * np.float32(1e-3)),
        "the constant w0 would become subnormal",
    ),
    "an epsilon": (residual_decoder(2, peak=3e30), "would leave the range of float32"),
}


@pytest.mark.share(2)
@pytest.mark.parametrize("name", BAD)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_speaks_against_scaling_is_in_the_report(name: str):
    model, why = BAD[name]
    found = converted(model)
    assert found.result.scaling is None
    assert found.report.scaling is not None
    (left,) = found.report.scaling.unscaled
    assert why in left.why
    assert f"not scaled: {left.value}, which reaches " in found.report.to_text()
    assert found.report.to_dict()["scaling"]["unscaled"][0]["why"] == left.why
    maker = next(n.name for n in model.graph.node if left.value in n.output)
    told = f"it belongs to values that leave the range and are not scaled: {left.why}"
    assert told in amp.explain(found.report, maker)


def summed(target: Any, *, magnitude: float = 300.0) -> amp.Conversion:
    """Convert three products; the terms of the second nearly cancel, so that results are small."""
    rng = np.random.default_rng(0)
    held = {
        "a": np.eye(512, dtype=np.float32),
        "b": rng.choice([-1.0, 1.0], (512, 64)).astype(np.float32),
        "c": rng.normal(0, 0.125, (64, 8)).astype(np.float32),
        "s": np.ones(64, np.float32),
        "t": np.zeros(64, np.float32),
    }
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17]> m (float[2,512] x) => (float[2,8] z) '
        "{ [o] u = MatMul(x, a) [p] v = MatMul(u, b) [r] r = Relu(v) "
        "[n] n = LayerNormalization(r, s, t) [q] z = MatMul(n, c) }"
    )
    model.graph.initializer.extend(numpy_helper.from_array(x, n) for n, x in held.items())
    feeds = {"x": (magnitude + rng.normal(size=(2, 512))).astype(np.float32)}
    return amp.convert(model, [feeds], target=target, stress=False)


@pytest.mark.parametrize("target", ["webgpu", "cpu-arm64"])
def test_partial_sums_that_leave_float16_are_scaled(target: Any):
    found = summed(target)
    assert found.ok
    assert found.report.scaling is not None
    (scaled,) = found.report.scaling.sets
    assert scaled.top == "v"
    assert scaled.largest > 1.4e5  # the results themselves end at 2e4
    assert scaled.after <= 65504 / 4
    kinds = {n.name: n.variables["T"].dtype for n in found.report.nodes if "T" in n.variables}
    assert kinds["p"] == "float16"


@pytest.fixture(scope="module", params=[1, 32])
def biased(request: pytest.FixtureRequest) -> onnx.ModelProto:
    """A stream to which biases add up beyond float16, though no bound says so.

    Of one large channel the weights tell; half of them are no outliers.
    """
    rng = np.random.default_rng(0)
    outlier = np.zeros(64, np.float32)
    outlier[: request.param] = 50_000
    held = {
        "a": rng.normal(0, 0.125, (64, 64)).astype(np.float32),
        "b": outlier,
        "s": np.ones(64, np.float32),
        "t": np.zeros(64, np.float32),
    }
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17]> m (float[2,64] x) => (float[2,64] z) '
        "{ [o] u = MatMul(x, a) [p] v = Add(u, b) [q] w = MatMul(x, a) [r] y = Add(w, b) "
        "[k] k = Add(v, y) [n] n = LayerNormalization(k, s, t) [l] z = MatMul(n, a) }"
    )
    model.graph.initializer.extend(numpy_helper.from_array(x, n) for n, x in held.items())
    return model


def test_without_data_what_overflows_on_made_up_inputs_is_scaled(biased: onnx.ModelProto):
    found = amp.convert(biased, stress=False)
    assert found.ok, found.verdict
    assert "made-up batch" in str(found.verdict)
    assert found.report.scaling is not None
    assert found.report.scaling.sets
    assert found.report.summary.casts_added == 2
