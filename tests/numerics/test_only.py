"""`only`: for devices that compute in nothing but 16 bits, all of a model or nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import low_models
import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto
from residual_models import residual_decoder, residual_feeds

import amp_rewrite as amp
from amp_rewrite.cli.common import NOT_STRICT
from amp_rewrite.cli.main import main
from amp_rewrite.errors import OnlyError

HEAD = '<ir_version: 9, opset_import: ["" : 18, "com.microsoft" : 1]>'


def parsed(body: str) -> onnx.ModelProto:
    weights = "w = Constant<value = float[4,4] {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7}>() "
    text = f"{HEAD} m (float[2,4] x) => (float[A,B] z) {{ {weights}{body} }}"
    return onnx.parser.parse_model(text)


def wide_values(model: Any) -> set[str]:
    """Return the values that are float32, but for inputs and outputs."""
    proto = onnx.shape_inference.infer_shapes(amp.to_proto(model))
    wide = {v.name for v in proto.graph.value_info if v.type.tensor_type.elem_type == 1}
    return wide | {t.name for t in proto.graph.initializer if t.data_type == TensorProto.FLOAT}


LOW = {
    "what the lists deny": "p = Sigmoid(x) e = Exp(p) s = ReduceSum(e) z = Div(e, s)",
    "what stands alone": "z = Sigmoid(x)",
    "a Softmax": "p = MatMul(x, w) s = Softmax(p) z = MatMul(s, w)",
    "a norm": "g = Constant<value_floats = [1.0, 2.0, 0.3, 4.0]>() p = MatMul(x, w) "
    "n = LayerNormalization(p, g) z = MatMul(n, w)",
    "a contributed operator": "p = MatMul(x, w) z = com.microsoft.QuickGelu(p)",
    "a setting in float32": "k = Constant<value_floats = [1.0, 2.0]>() z = Resize(x, , k)",
}


@pytest.mark.parametrize("name", LOW)
def test_nothing_is_float32_whatever_the_lists_say(name: str) -> None:
    ranges = {"x": (-1.0, 1.0)}
    found = amp.rewrite(parsed(LOW[name]), only="float16", input_ranges=ranges)
    unread = {"k", "w"} if "w)" not in LOW[name] else {"k"}
    left = wide_values(found.model) - unread
    ends = [n for n in amp.to_proto(found.model).graph.node if n.op_type == "Cast"]
    assert len(ends) == 2
    assert not left - {ends[1].output[0]}


HIGH = {
    "a number that does not fit": (
        "c = Constant<value_float = 1e6>() a = Sigmoid(x) b = Mul(a, c) s = Softmax(b) "
        "z = MatMul(s, w)",
        "Mul cannot be float16: .* too large for float16",
    ),
    "random numbers": ("r = RandomNormalLike<seed = 1.0>(x) z = Add(x, r)", "RandomNormalLike"),
}


@pytest.mark.parametrize("name", HIGH)
def test_what_cannot_be_low_is_named_and_refused(name: str) -> None:
    body, told = HIGH[name]
    with pytest.raises(OnlyError, match=told) as caught:
        amp.rewrite(parsed(body), only="float16", overflow="keep")
    assert caught.value.result.report.summary.float_nodes
    assert all("float16" in line for line in caught.value.shortcomings)


def test_the_command_names_it_exits_3_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, made = tmp_path / "m.onnx", tmp_path / "low.onnx"
    onnx.save(parsed(HIGH["random numbers"][0]), model)
    with pytest.raises(SystemExit) as left:
        main(["convert", str(model), "-o", str(made), "--only", "float16"])
    assert left.value.code == NOT_STRICT
    assert not made.exists()
    assert "--only: 1 node of RandomNormalLike cannot be float16: " in capsys.readouterr().err


def test_a_stream_beyond_the_range_is_scaled_for_it() -> None:
    found = amp.convert(residual_decoder(2), [residual_feeds()], stress=False, only="float16")
    assert found.ok
    assert found.report.scaling is not None
    kinds = Counter(n.op_type for n in amp.to_proto(found.model).graph.node)
    assert kinds["Cast"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cuda", "cpu-arm64", "webgpu"])
@pytest.mark.parametrize("name", ["nanochat", "whisper"])
def test_repair_leaves_no_float32(name: str, target: Any) -> None:
    model = low_models.MODELS[name]()
    made = amp.repair(model, [low_models.feeds(name)], only="float16", target=target)
    assert made.ok, made.to_text()
    assert (made.nodes_raised, made.casts_added, made.left) == (0, 0, ())
    assert not wide_values(made.model)
    graph = amp.to_proto(made.model).graph
    assert [v.type for v in graph.input] == [v.type for v in model.graph.input]
    assert [v.type for v in graph.output] == [v.type for v in model.graph.output]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nanochat", "whisper"])
def test_means_of_squares_are_float16_where_kernels_add_in_it(name: str) -> None:
    """Norms of 96 channels are written out; a Mul keeps their epsilons from vanishing."""
    make = {"nanochat": low_models.nanochat_decoder, "whisper": low_models.whisper_encoder}[name]
    given = {
        n: a.astype(np.float32) for n, a in low_models.feeds(name).items() if a.dtype.kind == "f"
    }
    model, feeds = make(TensorProto.FLOAT), low_models.feeds(name) | given
    made = amp.convert(model, [feeds], only="float16", target="webgpu", stress=False)
    assert made.ok
    assert all((output.cosine or 0) > 0.9995 for output in made.verification.outputs)
    with pytest.raises(OnlyError, match="cannot be float16"):
        amp.convert(model, [feeds], only="float16", target="webgpu", overflow="keep")


MEAN = onnx.parser.parse_model(
    '<ir_version: 8, opset_import: ["" : 17]> m (float[2,512] x) => (float[2,1] z) '
    "{ [r] z = ReduceMean<axes: ints = [-1]>(x) }"
)
REFUSED = "ReduceMean cannot be float16"


def test_a_long_mean_is_float16_unless_its_sum_is_likely_to_overflow() -> None:
    found = amp.rewrite(MEAN, only="float16", target="webgpu", input_ranges={"x": (0.0, 50.0)})
    assert not wide_values(found.model)
    with pytest.raises(OnlyError, match=REFUSED):
        amp.rewrite(MEAN, only="float16", target="webgpu", input_ranges={"x": (150.0, 250.0)})
