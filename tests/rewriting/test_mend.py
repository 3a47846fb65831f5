"""Files whose types are at odds."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.errors import GraphError, RunError
from amp_rewrite.runtimes.ort.sessions import Session


def loads(model: onnx.ModelProto) -> bool:
    """Tell whether ONNX Runtime takes a model."""
    try:
        Session(amp.load(model))
    except RunError:
        return False
    return True


def test_a_declaration_inside_becomes_what_the_operator_gives() -> None:
    model = parse("g (float16[2] x) => (float16[2] y) { h = Relu(x) y = Identity(h) }")
    model.graph.value_info.append(helper.make_tensor_value_info("h", TensorProto.FLOAT, [2]))
    assert not loads(model)
    report = amp.check(model, run=False)
    assert [danger.reason for danger in report.dangers] == ["declared-type"]
    made = amp.repair(model)
    assert made.changed
    assert loads(amp.to_proto(made.model))
    assert not amp.repair(made.model).changed


def test_an_input_becomes_what_its_initializer_is() -> None:
    model = parse(
        '<ir_version: 3, opset_import: ["" : 9]>'
        " g (float16[2] x, float[2] w) => (float16[2] y) { y = Add(x, w) }"
    )
    model.graph.initializer.append(numpy_helper.from_array(np.ones(2, np.float16), "w"))
    assert not loads(model)
    assert loads(amp.to_proto(amp.repair(model).model))


MIXED = "g (float16[2] x, float[2] z) => (float16[2] y) { h = Add(x, z) y = Relu(h) }"


def test_a_node_that_reads_float16_and_float32_computes_in_float32() -> None:
    model = parse(MIXED)
    model.graph.value_info.append(helper.make_tensor_value_info("h", TensorProto.FLOAT16, [2]))
    before = model.SerializeToString(deterministic=True)
    assert not loads(model)
    report = amp.check(model, run=False)
    assert not report.ok
    (danger,) = report.dangers
    assert (danger.node, danger.reason) == ("Add_0", "mixed-types")
    assert "is given float16 and float32 where its operator takes one type" in danger.words
    made = amp.repair(model)
    assert made.casts_added == 2
    assert "corrected: Add Add_0 is given float16 and float32" in made.to_text()
    fixed = amp.to_proto(made.model)
    assert [node.op_type for node in fixed.graph.node] == ["Cast", "Add", "Cast", "Relu"]
    onnx.checker.check_model(fixed, full_check=True)
    assert loads(fixed)
    assert not amp.repair(fixed).changed
    assert model.SerializeToString(deterministic=True) == before


def test_what_such_a_node_gives_keeps_the_type_that_the_file_records() -> None:
    text = "g (float[2] z, float16[2] x) => (float16[2] y) { y = Mul(z, x) }"
    fixed = amp.to_proto(amp.repair(parse(text)).model)
    onnx.checker.check_model(fixed, full_check=True)
    types = [v.type.tensor_type.elem_type for v in (*fixed.graph.input, *fixed.graph.output)]
    assert types == [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.FLOAT16]
    feeds = {"z": np.array([1.5, 3], np.float32), "x": np.array([2, 4], np.float16)}
    (y,) = Session(amp.load(fixed)).run(feeds)
    np.testing.assert_array_equal(y, np.array([3, 12], np.float16))


def test_one_such_node_behind_another_needs_no_casts_between() -> None:
    text = (
        "g (float16[2] x, float[2] z) => (float[2] y)"
        " { h = Add(x, z) k = Clip(z, , h) y = Sub(k, z) }"
    )
    model = parse(text)
    for name in ("h", "k"):
        info = helper.make_tensor_value_info(name, TensorProto.FLOAT16, [2])
        model.graph.value_info.append(info)
    report = amp.check(model, run=False)
    assert not report.ok
    assert {danger.reason for danger in report.dangers} == {"mixed-types"}
    fixed = amp.to_proto(amp.repair(model).model)
    onnx.checker.check_model(fixed, full_check=True)
    assert loads(fixed)
    assert [node.op_type for node in fixed.graph.node] == ["Cast", "Add", "Clip", "Sub"]


def test_such_a_node_inside_a_branch_is_mended_too() -> None:
    body = "g{0} () => (float16[2] y{0}) {{ y{0} = Add(x, z) }}"
    model = parse(
        "g (float16[2] x, float[2] z, bool c) => (float16[2] y) {"
        f" y = If(c) <then_branch = {body.format(1)}, else_branch = {body.format(2)}> }}"
    )
    made = amp.repair(model)
    assert made.casts_added == 3  # x is cast once, for both branches
    fixed = amp.to_proto(made.model)
    onnx.checker.check_model(fixed, full_check=True)
    assert loads(fixed)


def test_the_float32_form_of_such_a_file_has_no_casts_but_at_its_ends() -> None:
    made = amp.widen(parse(MIXED), keep_io_types=False)
    assert [node.op_type for node in amp.to_proto(made.model).graph.node] == ["Add", "Relu"]


def test_other_types_that_contradict_each_other_are_refused_in_one_line() -> None:
    model = parse("g (float16[2] x, double[2] z) => (float16[2] y) { y = Add(x, z) }")
    for call in (amp.check, amp.repair, amp.widen):
        with pytest.raises(GraphError, match=r"reads two types|enters beside it"):
            call(model)


def test_an_output_that_is_declared_wrong_is_refused() -> None:
    model = parse("g (float16[2] x) => (float[2] y) { y = Relu(x) }")
    with pytest.raises(GraphError, match="an output of the model has another type"):
        amp.repair(model)


def test_from_one_low_type_to_the_other_nothing_contradictory_is_written() -> None:
    product = "p = MatMul(x, w) y = Add(p, v)"
    head = "g (float16[2,2] x, float16[2,2] w, float[2,2] v) => (float16[2,2] y)"
    model = parse(f"{head} {{ {product} }}")
    made = amp.rewrite(model, precision="bfloat16", target="schema")
    onnx.checker.check_model(amp.to_proto(made.model), full_check=True)


ENTERING = """g (float[1,3,8] x) => (float16[1,4,8] y) <float16[4] b = {0, 0, 0, 0}> {
  %s
  h = Conv<kernel_shape = [1]>(v, w, b)
  y = Relu(h) }"""


@pytest.mark.parametrize("way", ["v = Identity(x)", "t = Transpose(x) v = Transpose(t)"])
def test_a_float32_input_into_16_bit_weights_is_cast_alone(way: str) -> None:
    """Exporters keep pictures float32 and make all weights float16 (mobius-onnx)."""
    model = parse(ENTERING % way)
    weight = np.ones((4, 3, 1), np.float16)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    made = amp.to_proto(amp.repair(model).model)
    onnx.checker.check_model(made, full_check=True)
    casts = [node.attribute[0].i for node in made.graph.node if node.op_type == "Cast"]
    assert casts == [onnx.TensorProto.FLOAT16]


def test_a_float32_result_into_16_bit_weights_raises_them() -> None:
    model = parse(ENTERING % "v = Sigmoid(x)")
    weight = np.ones((4, 3, 1), np.float16)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    made = amp.to_proto(amp.repair(model).model)
    onnx.checker.check_model(made, full_check=True)
    casts = [node.attribute[0].i for node in made.graph.node if node.op_type == "Cast"]
    assert onnx.TensorProto.FLOAT in casts


def test_what_a_file_declares_behind_such_an_input_does_not_matter() -> None:
    """onnx's inference takes the type of the picture for that of all that follows."""
    model = parse(ENTERING % "v = Identity(x)")
    made = [n.output[0] for n in model.graph.node[:2]]
    model.graph.value_info.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in made
    )
    weight = np.ones((4, 3, 1), np.float16)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    result = amp.to_proto(amp.repair(model).model)
    onnx.checker.check_model(result, full_check=True)
    assert loads(result)
    assert [n.op_type for n in result.graph.node].count("Cast") == 1


def test_an_output_that_is_declared_float32_stays_so() -> None:
    model = parse((ENTERING % "v = Identity(x)").replace("(float16[1,4,8] y)", "(float[1,4,8] y)"))
    weight = np.ones((4, 3, 1), np.float16)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    del model.graph.value_info[:]
    model.graph.value_info.append(helper.make_tensor_value_info("h", TensorProto.FLOAT, None))
    result = amp.to_proto(amp.repair(model).model)
    onnx.checker.check_model(result, full_check=True)
    assert result.graph.output[0].type.tensor_type.elem_type == TensorProto.FLOAT


ML = '<ir_version: 9, opset_import: ["" : 18, "ai.onnx.ml" : 3]>'


@pytest.mark.parametrize(
    "text",
    [
        ML + "g (float16[N,4] x, float16[4,4] w) => (float[N,4] y) {"
        ' p = MatMul(x, w) y = ai.onnx.ml.Normalizer<norm = "L2">(p) }',
        ML + "g (float16[N,4] x, float16[4,4] w) => (float[N,4] y) {"
        " p = MatMul(x, w) y = ai.onnx.ml.Scaler<offset = [0.5], scale = [2.0]>(p) }",
        "g (float16[1,1,4] x, float16[3] s) => (float16[1,1,P] y) { y = Resize(x, , s) }",
        "g (float16[2,2] x) => (float16[2,2] y) { h = EyeLike(x) y = Abs(h) }",
    ],
)
def test_an_operator_that_takes_no_float16_is_given_float32(text: str) -> None:
    model = parse(text)
    is_at_odds = not loads(model)
    report = amp.check(model, run=False)
    assert is_at_odds == bool([d for d in report.dangers if d.reason == "mixed-types"])
    if not is_at_odds:
        return
    (danger,) = [d for d in report.dangers if d.reason == "mixed-types"]
    assert "is given float16, which its operator does not take" in danger.words
    made = amp.repair(model)
    assert loads(amp.to_proto(made.model))
    assert "corrected: " in made.to_text()
    assert not amp.repair(made.model).changed


SCAN = (
    "g (float[B,3] x) => (float[B,5] y) <float[5,3] k = {0,0,1, 0,1,0, 1,0,0, 1,1,0, 0,1,1}> {"
    " last, d = Scan<num_scan_inputs = 1, body = b (float16[5,3] st, float16[3] row) =>"
    " (float16[5,3] st2, float16[5] o) <int64[1] ax = {1}> {"
    " st2 = Identity(st) df = Sub(st, row) o = ReduceSumSquare<keepdims = 0>(df, ax) }>(k, x)"
    " y = Identity(d) }"
)
LOOP = (
    "g (int64 n, bool c, float[3] x) => (float[3] y) {"
    " y = Loop<body = b (int64 i, bool go, float16[3] st) => (bool again, float16[3] st2) {"
    " again = Identity(go) st2 = Abs(st) }>(n, c, x) }"
)


@pytest.mark.parametrize("text", [SCAN, LOOP])
def test_the_inputs_of_a_body_are_declared_as_what_is_passed_in(text: str) -> None:
    model = parse(text)
    assert not loads(model)
    report = amp.check(model, run=False)
    assert not report.ok
    assert {d.op for d in report.dangers} >= {"Scan" if "Scan" in text else "Loop"}
    made = amp.repair(model)
    assert loads(amp.to_proto(made.model))


def test_value_info_of_an_initializer_says_what_it_is() -> None:
    """ONNX Runtime's float16 tool leaves the type of what it did not convert at float16."""
    model = parse(
        "g (float16[2,4] x) => (float16[2,4] y) {"
        " h = Cast<to = 1>(x) p = MatMul(h, w) y = Cast<to = 10>(p) }"
    )
    model.graph.initializer.append(numpy_helper.from_array(np.eye(4, dtype=np.float32), "w"))
    stale = helper.make_tensor_value_info("w", TensorProto.FLOAT16, [4, 4])
    model.graph.value_info.append(stale)
    made = amp.to_proto(amp.repair(model).model)
    onnx.checker.check_model(made, full_check=True)
    kept = [i.type.tensor_type.elem_type for i in made.graph.value_info if i.name == "w"]
    assert TensorProto.FLOAT16 not in kept


def test_a_node_that_stands_in_the_file_twice_is_named_and_removed() -> None:
    """onnxconverter-common adds one Cast for each reader, of one name if the readers have none."""
    cast = "h = Cast<to = 10>(x)"
    model = parse(
        f"g (float[2,4] x) => (float16[2,4] y) {{ {cast} a = Relu(h) {cast} b = Neg(h)"
        " y = Add(a, b) }"
    )
    with pytest.warns(amp.AmpWarning, match="1 node stood in the file twice"):
        (danger,) = amp.check(model, run=False).dangers
    assert (danger.op, danger.reason) == ("Cast", "repeated-node")
    assert danger.words.startswith("stands in the file twice")
    with pytest.warns(amp.AmpWarning, match="1 node stood in the file twice"):
        repaired = amp.repair(model)
    assert repaired.changed
    assert "stands in the file twice" in repaired.to_text()
    assert loads(amp.to_proto(repaired.model))


LOW = np.eye(4, dtype=np.float16)
ONES = dict.fromkeys(("s", "t", "mu", "va"), np.ones(4, np.float32))


def model(between: str, **weights: np.ndarray) -> onnx.ModelProto:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float16[4,4] x) => (float16[4,4] y) {
        h = MatMul(x, w) %s b = BatchNormalization(r, s, t, mu, va) y = Relu(b) }"""
    return with_weights(text % between, **({"w": LOW} | ONES | weights))


def with_weights(text: str, **weights: np.ndarray) -> onnx.ModelProto:
    made = parse(text)
    tensors = (numpy_helper.from_array(array, name) for name, array in weights.items())
    made.graph.initializer.extend(tensors)
    return made


def norms_loads(made: onnx.ModelProto) -> bool:
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        ort.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:  # noqa: BLE001 its errors have no common type
        return False
    return True


@pytest.mark.parametrize("between", ["r = Identity(h)", "r = Reshape(h, c)"])
def test_a_norm_that_onnx_runtime_would_fuse_becomes_float32(between: str) -> None:
    source = model(between, c=np.array([4, 4]))
    assert not norms_loads(source)
    result = amp.rewrite(source, target="cuda")
    made = amp.to_proto(result.model)
    assert norms_loads(made)
    assert result.changed
    assert result.report.summary.casts_added == 2
    again = amp.rewrite(made, target="cuda")
    assert amp.to_proto(again.model).SerializeToString() == made.SerializeToString()


def test_other_norms_are_left_alone() -> None:
    low = {name: value.astype(np.float16) for name, value in ONES.items()}
    for source in (
        model("r = Identity(h)", **low),
        model("r = Abs(h)"),
    ):
        made = amp.to_proto(amp.rewrite(source, target="cuda").model)
        assert [node.op_type for node in made.graph.node] == [n.op_type for n in source.graph.node]


def test_a_float32_norm_behind_a_low_product_is_not_made_low() -> None:
    """The Cast between the two would be no Cast any more."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float16[4,4] x) => (float16[4,4] y) {
        h = MatMul(x, w) r = Cast<to = 1>(h) b = BatchNormalization(r, s, t, mu, va)
        d = MatMul(b, v) y = Cast<to = 10>(d) }"""
    large = {"s": np.full(4, 1e6, np.float32)}
    source = with_weights(text, w=LOW, v=np.eye(4, dtype=np.float32), **(ONES | large))
    result = amp.rewrite(source, target="tensorrt", allow_ops=["BatchNormalization"])
    assert norms_loads(amp.to_proto(result.model))
    norm = next(node for node in result.report.nodes if node.op == "BatchNormalization")
    assert norm.variables["T"].reason == "runtime-fusion"


RANGE = "t = Range(nil, f, unit) y = Neg(t)"
LENGTHS = {
    "cast": "s = Gather<axis = 0>(d, i) f = Cast<to = 10>(s)",
    "cast twice": "s = Gather<axis = 0>(d, i) e = Cast<to = 1>(s) f = Cast<to = 10>(e)",
    "moved": "s = Gather<axis = 0>(d, j) e = Cast<to = 10>(s) f = Squeeze(e, k)",
    "read elsewhere": "s = Gather<axis = 0>(d, i) f = Cast<to = 10>(s) o = Add(f, unit)",
}


@pytest.mark.parametrize("name", LENGTHS)
def test_a_range_gets_its_length_unrounded(name: str) -> None:
    model = parse(
        f"""<ir_version: 8, opset_import: ["" : 17]> g (float16[S] x) => (float16[T] y)
        <float16 nil = {{0}}, float16 unit = {{15360}}, int64 i = {{0}}, int64[1] j = {{0}},
         int64[1] k = {{0}}> {{ d = Shape(x) {LENGTHS[name]} {RANGE} }}"""
    )
    repaired = amp.to_proto(amp.repair(model).model)
    onnx.checker.check_model(repaired)
    found = amp.evaluate(repaired, {"x": np.zeros(3001, np.float16)})["y"]
    assert found.shape == (3001,)
