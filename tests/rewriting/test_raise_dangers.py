"""What is raised in a model in 16 bits: text before, text after; all else stays."""

from __future__ import annotations

import onnx
import pytest
from rewrite_text import lines, parse

import amp_rewrite as amp

NORM = (
    "g (float16[N,64] x, float16[64,64] w) => (float16[N,64] y) <int64[1] axes = {1}> {"
    " h = MatMul(x, w) s = Mul(h, h) r = ReduceMean(s, axes) d = Sqrt(r) e = Div(h, d)"
    " y = MatMul(e, w) }"
)
RAISED = (
    "g (float16[N,64] x, float16[64,64] w) => (float16[N,64] y) <int64[1] axes = {1}> {"
    " h = MatMul(x, w) h_fp32 = Cast<to = 1>(h) s = Mul(h_fp32, h_fp32) r = ReduceMean(s, axes)"
    " d = Sqrt(r) e = Div(h_fp32, d) e_fp16 = Cast<to = 10>(e) y = MatMul(e_fp16, w) }"
)


def repaired(model: onnx.ModelProto | str, **options: object) -> amp.Repair:
    """Repair a model; the input is not touched, and a second repair changes nothing."""
    given = parse(model) if isinstance(model, str) else model
    before = given.SerializeToString(deterministic=True)
    made = amp.repair(given, **{"target": "schema", **options})
    assert given.SerializeToString(deterministic=True) == before
    again = amp.repair(made.model, **{"target": "schema", **options})
    assert not again.changed, again.to_text()
    assert amp.to_proto(again.model) == amp.to_proto(made.model)
    return made


def graph_of(made: amp.Repair) -> onnx.GraphProto:
    """Return the graph of a repaired model, without what is declared inside."""
    graph = amp.to_proto(made.model).graph
    del graph.value_info[:]
    return graph


def test_a_square_and_what_follows_it_up_to_the_next_product_is_raised() -> None:
    made = repaired(NORM)
    assert lines(graph_of(made)) == lines(parse(RAISED).graph)
    assert made.nodes_raised == 4
    assert made.arithmetic_raised == 0
    assert {d.reason for d in made.dangers} == {
        "square-before-reduction",
        "deny-list",
        "downstream-of-deny",
    }


def test_bfloat16_has_the_range_of_float32_and_its_squares_are_safe() -> None:
    assert not repaired(NORM.replace("float16", "bfloat16")).changed


def test_a_safe_model_is_not_changed_by_a_byte() -> None:
    safe = parse("g (float16[N,4] x) => (float16[N,4] y) { y = Relu(x) }")
    made = repaired(safe)
    assert not made.changed
    assert "Nothing changed" in made.headline
    assert amp.to_proto(made.model) == amp.to_proto(amp.load(safe))


def test_weights_stay_stored_low_unless_they_are_to_be_converted() -> None:
    text = "g (float16[N,4] x) => (float16[N,4] y) <float16[1] two = {16384}> { y = Pow(x, two) }"
    kept, wide = repaired(text), repaired(text, weights="convert")
    assert [t.data_type for t in graph_of(kept).initializer] == [10]
    assert [t.data_type for t in graph_of(wide).initializer] == [1]
    assert (kept.weight_bytes_added, wide.weight_bytes_added) == (0, 2)


def test_inputs_and_outputs_become_float32_if_they_are_to() -> None:
    graph = graph_of(repaired(NORM, keep_io="float32"))
    ends = [v.type.tensor_type.elem_type for v in (*graph.input, *graph.output)]
    assert ends == [1, 1, 1]


def test_a_node_that_the_user_allows_stays_low() -> None:
    text = NORM.replace("ReduceMean(s", "ReduceMax(s")
    names = [d.node for d in repaired(NORM).dangers if d.reason == "deny-list"]
    assert names == ["ReduceMean_2"]
    assert not repaired(text).changed


def test_islands_of_float32_stay_as_they_are() -> None:
    text = RAISED
    assert not repaired(text).changed


def test_who_demands_an_angle_is_raised_with_it_so_that_no_cast_rounds_it() -> None:
    made = repaired(
        "g (int64[N,1] p, float16[N,8] x, float16[1,8] f) => (float16[N,8] y) {"
        " c = Cast<to = 10>(p) a = Mul(c, f) s = Sin(a) y = Mul(x, s) }"
    )
    after = parse(
        "g (int64[N,1] p, float16[N,8] x, float16[1,8] f) => (float16[N,8] y) {"
        " f_fp32 = Cast<to = 1>(f) c = Cast<to = 1>(p) a = Mul(c, f_fp32) s = Sin(a)"
        " s_fp16 = Cast<to = 10>(s) y = Mul(x, s_fp16) }"
    )
    assert lines(graph_of(made)) == lines(after.graph)


def types_of(made: amp.Repair, op: str) -> list[int]:
    """Return the element types of the outputs of the operators of a kind."""
    model = onnx.shape_inference.infer_shapes(amp.to_proto(made.model))
    values = (*model.graph.value_info, *model.graph.output)
    known = {v.name: v.type.tensor_type.elem_type for v in values}
    return [known[n.output[0]] for n in model.graph.node if n.op_type == op]


TWO_TYPES = (
    "g (float16[N,8] x, bfloat16[8,8] w) => (float16[N,8] y) {"
    " u = Relu(x) h = Cast<to = 16>(u) m = MatMul(h, w) r = Exp(m) s = MatMul(r, w)"
    " y = Cast<to = 10>(s) }",
    "g (float[N,8] x, float16[8,8] w, bfloat16[8,8] v) => (float[N,8] y) {"
    " a = Cast<to = 10>(x) m = MatMul(a, w) c = Cast<to = 1>(m) d = Cast<to = 16>(c)"
    " e = MatMul(d, v) f = Exp(e) g = MatMul(f, v) y = Cast<to = 1>(g) }",
    "g (float16[N,8] x, bfloat16[8,8] w) => (bfloat16[N,8] y) {"
    " a = Relu(x) b = Relu(a) h = Cast<to = 16>(b) m = MatMul(h, w) r = Exp(m) s = MatMul(r, w)"
    " t = Exp(s) y = MatMul(t, w) }",
)


@pytest.mark.parametrize("text", TWO_TYPES)
def test_of_two_types_of_16_bits_what_is_said_to_be_raised_is(text: str) -> None:
    made = repaired(text, target="cuda")
    assert {d.op for d in made.dangers} == {"Exp"}
    assert set(types_of(made, "Exp")) == {1}
    assert len({*types_of(made, "MatMul")} - {1}) == 1  # the rarer type became float32
    assert {d.node for d in made.dangers} <= {n.name for n in made.model.graph}


def test_a_cast_to_what_stays_low_is_not_raised_again_and_again() -> None:
    made = repaired(
        "g (int64[N,8] x, float16[8,8] w) => (float16[N,8] y, float16[N,8] z) {"
        " h = Cast<to = 10>(x) y = MatMul(h, w) z = Add(h, h) }"
    )
    assert [(d.node, d.op) for d in made.stay] == [("z", "output")]
    assert not made.ok
    assert all(d.op != "output" for d in made.dangers)
    wide = amp.repair(made.model, keep_io="float32")
    assert wide.ok
    assert wide.stay == ()


SERIES = (
    "g (float[N,64] x, float16[64,16] w) => (float[N,16] y) <int64[1] axes = {1}> {"
    " h = Cast<to = 10>(x) MOVED mean = ReduceMean(m, axes) c = Sub(m, mean) s = Mul(c, c)"
    " v = ReduceMean(s, axes) d = Sqrt(v) n = Div(c, d) p = MatMul(n, w) y = Cast<to = 1>(p) }"
)


@pytest.mark.parametrize(
    "moved",
    [
        "m = Identity(h)",
        "m = Transpose<perm = [0, 1]>(h)",
        "t = Transpose<perm = [1, 0]>(h) m = Transpose<perm = [1, 0]>(t)",
        "e = Unsqueeze(h, axes) m = Squeeze(e, axes)",
    ],
)
def test_float32_numbers_are_not_rounded_in_front_of_what_needs_them(moved: str) -> None:
    made = repaired(SERIES.replace("MOVED", moved))
    (rounded,) = [d for d in made.dangers if d.reason == "rounded-before-float32"]
    assert (rounded.node, rounded.op) == ("Cast_0", "Cast")
    model = amp.to_proto(made.model)
    makers = {node.output[0]: node for node in model.graph.node}
    (mean, _) = [node for node in model.graph.node if node.op_type == "ReduceMean"]
    value = mean.input[0]
    while value in makers:
        assert makers[value].op_type != "Cast"
        value = makers[value].input[0]
    assert value == "x"


def test_a_cast_in_front_of_low_operators_alone_stays() -> None:
    text = (
        "g (float[N,8] x, float16[8,8] w) => (float16[N,8] y) {"
        " h = Cast<to = 10>(x) y = MatMul(h, w) }"
    )
    assert not repaired(text).changed
