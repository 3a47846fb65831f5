"""`repair`: models that are wrong in 16 bits are right afterwards."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import low_models
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from rewrite_text import parse
from thinned import every

import amp_rewrite as amp
from amp_rewrite.errors import OptionError, VerdictError

LEAST = 0.999
MOST = {"nanochat": 0.12, "nanochat_q4": 0.12}
"""The share of the arithmetic that is raised where squares themselves leave float16: one product of
the eight of a layer reads them."""


def inputs(name: str) -> list[dict[str, low_models.Array]]:
    """Return batches for a model."""
    return [low_models.feeds(name, seed) for seed in range(2)]


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("name", "target"), every(product(low_models.WRONG, ("cuda", "webgpu")), 5)
)
def test_a_wrong_model_is_right_afterwards(name: str, target: str) -> None:
    model = low_models.MODELS[name]()
    made = amp.repair(model, inputs(name), target=target)
    assert made.ok, made.verdict
    assert made.verification is not None
    cosines = [o.cosine for o in made.verification.outputs if o.cosine is not None]
    assert min(cosines) >= LEAST
    assert made.arithmetic_raised <= MOST.get(name, 0.1)
    given = [v.type.tensor_type.elem_type for v in (*model.graph.input, *model.graph.output)]
    graph = amp.to_proto(made.model).graph
    assert [v.type.tensor_type.elem_type for v in (*graph.input, *graph.output)] == given


def on_device(name: str, model: onnx.ModelProto | ir.Model, provider: str) -> tuple[bool, float]:
    """Return whether a model is finite on a device, and its least cosine to the float32 form."""
    wide = amp.widen(low_models.MODELS[name]()).model
    report = amp.verify(
        wide, model, inputs(name), providers=[provider], intermediates=False, stress=False
    )
    assert report.device is not None
    assert report.device.error is None
    outputs = report.device.original
    finite = all(output.nan == output.inf == 0 for output in outputs)
    return finite, min(1.0 if o.cosine is None else o.cosine for o in outputs)


@pytest.mark.share(3)
@pytest.mark.webgpu
@pytest.mark.parametrize("name", ["gemma", "gemma_q4", "nanochat", "nanochat_q4"])
def test_on_a_device_a_wrong_model_is_right_afterwards(name: str, webgpu: str) -> None:
    model = low_models.MODELS[name]()
    finite, cosine = on_device(name, model, webgpu)
    assert not (finite and cosine >= LEAST)
    made = amp.repair(model, inputs(name), target="webgpu")
    finite, cosine = on_device(name, made.model, webgpu)
    assert finite
    assert cosine >= LEAST


def test_float32_ends_are_advised_only_where_an_end_is_what_stays() -> None:
    made = amp.repair(
        parse(
            "g (float16[N,64] x, int64[1] k) => (float16[N,1] y)"
            " { v, i = TopK(x, k) f = Cast<to = 1>(i) y = Cast<to = 10>(f) }"
        )
    )
    (end,) = made.stay
    inside = replace(end, node="c", op="Cast")
    at_end, within = [*replace(made, stay=(end, inside)).lines()][-2:]
    assert at_end.startswith("stays: output y ")
    assert at_end.endswith("; --keep-io float32 raises it")
    assert within.startswith("stays: Cast c ")
    assert "--keep-io" not in within


def test_the_result_is_the_same_from_a_file_and_is_written_whole(tmp_path: Path) -> None:
    source, target = tmp_path / "low.onnx", tmp_path / "fixed.onnx"
    onnx.save(low_models.t5_encoder(), source)
    made = amp.repair(source, output=target)
    assert amp.to_proto(amp.load(target)) == amp.to_proto(made.model)
    before, after = onnx.load(source), onnx.load(target)
    assert [t.SerializeToString() for t in after.graph.initializer] == [
        t.SerializeToString() for t in before.graph.initializer
    ]


def test_a_result_that_fails_is_not_written(tmp_path: Path) -> None:
    target = tmp_path / "fixed.onnx"
    model = parse("g (float16[N,64] x) => (float16[N,8] y) { h = MatMul(x, w) y = Relu(h) }")
    weight = np.full((64, 8), 400, np.float16)  # overflows on the stress inputs alone
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    made = amp.repair(model, verify=True)
    assert not made.ok
    assert made.verdict is not None
    assert (made.verdict.status, made.verdict.notes) == ("failed", ("give --data",))
    with pytest.raises(VerdictError):
        made.save(target)
    assert not target.exists()
    made.save(target, write_failed=True)
    assert target.exists()


def test_what_made_up_inputs_show_is_raised_as_what_data_show_is() -> None:
    model = low_models.MODELS["nanochat_q4"]()
    unseen = amp.repair(model)
    seen = amp.repair(model, verify=True, stress=False, overflow="keep")
    assert seen.ok, seen.verdict
    assert seen.measured
    assert not set(seen.measured) & {danger.node for danger in seen.dangers}
    assert any(line.startswith("raised because of made-up inputs: ") for line in seen.lines())
    assert seen.nodes_raised > unseen.nodes_raised


@pytest.mark.parametrize(
    ("body", "n_casts"),
    [
        ("a = Exp(x) b = Cast<to=1>(a) c = Cast<to=10>(b) d = Pow(c, two) y = Add(d, x)", 1),
        ("d = Pow(x, two) y = Add(d, x)", 0),
    ],
)
def test_casts_and_constants_are_no_nodes_that_are_raised(body: str, n_casts: int) -> None:
    text = f"g (float16[4,4] x) => (float16[4,4] y) <float16 two = {{2}}> {{ {body} }}"
    made = amp.repair(parse(text))
    flat, nodes = made.raised.context.type_graph.flat, made.raised.context.type_graph.nodes
    numbers = {nodes[vertex] for vertex in made.raised.plan.vertices}
    raised = [flat.called(number).op_type for number in numbers]
    assert raised.count("Cast") == n_casts
    assert made.nodes_raised == len(raised) - n_casts <= made.nodes


def test_a_model_that_the_rules_alone_were_asked_about_is_not_called_safe() -> None:
    model = parse("g (float16[N,4] x) => (float16[N,4] y) { y = Relu(x) }")
    asked = amp.repair(model)
    assert asked.headline == ("Nothing changed: nothing unsafe found in float16 for cuda")
    run = amp.repair(model, verify=True)
    assert run.headline == "Nothing changed: nothing unsafe found in float16 for cuda"


@pytest.mark.share(2)
@pytest.mark.parametrize("name", ["gemma", "nanochat"])
def test_what_overflows_is_scaled_and_stays_in_16_bits(name: str) -> None:
    model = low_models.MODELS[name]()
    kept = amp.repair(model, inputs(name), overflow="keep")
    made = amp.repair(model, inputs(name))
    assert kept.scaling is None
    assert made.ok, made.verdict
    assert made.scaling is not None
    assert made.nodes_raised < kept.nodes_raised
    assert made.casts_added - len(made.raised.removed) < kept.casts_added
    assert made.arithmetic_raised == 0
    norms = {"Pow", "ReduceMean", "Add", "Sqrt", "Reciprocal", "Mul"}
    assert {danger.op for danger in made.dangers} <= norms
    assert not made.measured
    graph = amp.to_proto(made.model).graph
    assert {n.op_type for n in graph.node} == {n.op_type for n in model.graph.node} | {"Cast"}
    assert "scaled: " in made.to_text()
    assert made.to_dict()["scaling"]["sets"]


def test_made_up_inputs_show_what_to_scale_and_a_second_time_nothing_changes() -> None:
    made = amp.repair(low_models.gemma_decoder(), verify=True, stress=False)
    assert made.ok, made.verdict
    assert made.scaling is not None
    again = amp.repair(made.model, inputs("gemma"))
    assert not again.changed


@pytest.mark.parametrize("number", [onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16])
def test_a_constant_in_16_bits_is_nothing_to_repair(number: int) -> None:
    tensor = onnx.helper.make_tensor("c", number, [2], [1.0, 2.0])
    model = parse("""
        <ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Exp(x) }
    """)
    model.graph.node.append(onnx.helper.make_node("Constant", [], ["c"], value=tensor))
    model.graph.output.append(onnx.helper.make_tensor_value_info("c", number, [2]))
    with pytest.raises(OptionError, match="nothing in 16 bits"):
        amp.repair(model)
    assert amp.check(model, run=False).ok
