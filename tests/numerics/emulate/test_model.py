"""The emulated model: every construct of ONNX that can hold a low-precision value."""

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from backend_cases import all_cases
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from releases import before

import amp_rewrite as amp
from amp_rewrite.dtypes import LOW
from amp_rewrite.errors import OptionError
from amp_rewrite.numerics.emulate import evaluate
from amp_rewrite.numerics.emulate.model import emulate_typed
from amp_rewrite.numerics.emulate.typed_model import TypedModel


def emulate_model(proto: onnx.ModelProto, **options: Any) -> ir.Model:
    model = amp.load(proto)
    emulate_typed(TypedModel(model), **options)
    return model


X = np.array([1.0009765625, 300.0, -2.5, 6e-8], np.float16)

NEWEST_OPSET, NEWEST_IR = 25, 10
"""What every ONNX Runtime can load that pyproject.toml allows."""


def parse(text: str) -> onnx.ModelProto:
    header = '<ir_version: 9, opset_import: ["" : 17, "local" : 1]>'
    return onnx.parser.parse_model(header + text)


CONSTRUCTS = {
    "a captured value in an If": """
g (float16[N] x) => (float16[N] y) {
  s = Mul(x, x)
  sum = ReduceSum <keepdims = 0> (x)
  zero = Constant <value = float16 {0}> ()
  positive = Greater(sum, zero)
  y = If (positive) <
    then_branch = t () => (float16[N] a) { a = Add(s, x) },
    else_branch = e () => (float16[N] b) { b = Sub(s, x) }
  >
}""",
    "a Loop with a carried value and a scan output": """
g (float16[N] x) => (float16[N] y, float16[3,N] all) {
  n = Constant <value = int64 {3}> ()
  true = Constant <value = bool {1}> ()
  y, all = Loop (n, true, x) <body = b (int64 i, bool c, float16[N] h)
      => (bool d, float16[N] next, float16[N] scan) {
    d = Identity(c)
    next = Mul(h, x)
    scan = Identity(next)
  }>
}""",
    "a Scan": """
g (float16[4] x) => (float16[1] y, float16[4,1] all) {
  zero = Constant <value = float16[1] {0}> ()
  one = Constant <value = int64[1] {1}> ()
  column = Unsqueeze(x, one)
  y, all = Scan <num_scan_inputs = 1, body = b (float16[1] h, float16[1] e)
      => (float16[1] next, float16[1] out) {
    next = Add(h, e)
    out = Mul(next, e)
  }> (zero, column)
}""",
    "a sequence": """
g (float16[4] x) => (float16[2,4] y) {
  square = Mul(x, x)
  s = SequenceConstruct(x, square)
  y = ConcatFromSequence <axis = 0, new_axis = 1> (s)
}""",
    "an optional": """
g (float16[4] x) => (float16[4] y) {
  square = Mul(x, x)
  o = Optional(square)
  y = OptionalGetElement(o)
}""",
    "a model-local function": """
g (float16[4] x) => (float16[4] y) {
  y = local.square_plus(x)
}
<domain: "local", opset_import: ["" : 17]>
square_plus (a) => (b) {
  c = Constant <value = float16 {3}> ()
  s = Mul(a, a)
  b = Add(s, c)
}""",
    "casts between all float types": """
g (float16[4] x) => (float16[4] y, double[4] d) {
  f = Cast <to = 1> (x)
  third = Constant <value = float {0.3333333}> ()
  m = Mul(f, third)
  b = Cast <to = 16> (m)
  h = Cast <to = 10> (b)
  y = Mul(h, h)
  d = Cast <to = 11> (y)
}""",
    "attributes that name a type": """
g (float16[4] x) => (float16[4] y, float16[2] z) {
  like = CastLike(x, x)
  two = Constant <value = int64[1] {2}> ()
  z = ConstantOfShape <value = float16[1] {3}> (two)
  y = Add(like, x)
}""",
    "integers made from low values": """
g (float16[4] x) => (int64[1] i, bool[4] more) {
  square = Mul(x, x)
  i = ArgMax <keepdims = 1> (square)
  more = Greater(square, x)
}""",
}


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_a_construct_gives_what_the_reference_gives(construct: str) -> None:
    model = parse(CONSTRUCTS[construct])
    names = [o.name for o in model.graph.output]
    found = evaluate(model, {"x": X})
    results: Any = ReferenceEvaluator(model).run(None, {"x": X})
    for name, value in zip(names, results, strict=True):
        value = value[0] if isinstance(value, list) else value  # an optional's content
        assert found[name].dtype == value.dtype
        np.testing.assert_array_equal(found[name], value)


@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_inputs_and_outputs_keep_their_types(construct: str) -> None:
    model = parse(CONSTRUCTS[construct])
    emulated = emulate_model(model)
    onnx.checker.check_model(amp.to_proto(emulated), full_check=True)
    after = amp.to_proto(emulated).graph
    for was, now in zip(
        (*model.graph.input, *model.graph.output), (*after.input, *after.output), strict=True
    ):
        assert (now.name, now.type.tensor_type.elem_type) == (
            was.name,
            was.type.tensor_type.elem_type,
        )


def test_moving_elements_adds_no_rounding() -> None:
    model = parse("""
g (float16[4] x) => (float16[2,2] y) {
  shape = Constant <value = int64[2] {2, 2}> ()
  r = Relu(x)
  s = Reshape(r, shape)
  y = Transpose(s)
}""")
    emulated = emulate_model(model, keep_io_types=False)
    casts = [n for n in emulated.graph if n.op_type == "Cast"]
    assert len(casts) == 2  # the pair of the input
    assert [v.dtype for v in emulated.graph.outputs] == [ir.DataType.FLOAT]


def test_weights_are_rounded_in_the_file_without_casts() -> None:
    weight = numpy_helper.from_array(np.array([0.1, 65504], np.float16), "w")
    model = parse("g (float16[2] x) => (float16[2] y) { y = Mul(x, w) }")
    model.graph.initializer.append(weight)
    emulated = emulate_model(model)
    tensor = emulated.graph.initializers["w"].const_value
    assert tensor is not None
    assert tensor.dtype == ir.DataType.FLOAT
    assert tensor.numpy().tolist() == [float(np.float16(0.1)), 65504.0]
    assert all(n.inputs[0] is not emulated.graph.initializers["w"] for n in emulated.graph)


def test_sequences_at_the_boundary_are_fed_and_returned() -> None:
    text = """
g (seq(float16[N]) s) => (seq(float16[N]) t) {
  zero = Constant <value = int64 {0}> ()
  first = SequenceAt(s, zero)
  square = Mul(first, first)
  t = SequenceInsert(s, square)
}"""
    model = parse(text)
    feeds = {"s": [np.array([300], np.float16), np.array([2, 3], np.float16)]}
    result = evaluate(model, feeds)["t"]
    assert [r.tolist() for r in result] == [[300.0], [2.0, 3.0], [np.inf]]
    assert all(r.dtype == np.float16 for r in result)
    with pytest.raises(OptionError, match="a sequence or an optional cannot keep"):
        evaluate(model, feeds, emulate=False)


def test_a_custom_operator_stays_low_between_casts() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17, "my" : 1]>'
        "g (float16[2] x) => (float16[2] y) <float16[2] b>"
        "{ a = Mul(x, x) b = my.Op(a) y = Mul(b, b) }"
    )
    emulated = emulate_model(model)
    node = next(n for n in emulated.graph if n.op_type == "Op")
    assert node.inputs[0] is not None
    producer = node.inputs[0].producer()
    assert producer is not None
    assert producer.op_type == "Cast"
    assert node.inputs[0].dtype == ir.DataType.FLOAT16
    assert [user.op_type for user, _ in node.outputs[0].uses()] == ["Cast"]


@pytest.mark.parametrize(
    ("operators", "message"),
    [(["Einsum"], "'Einsum'.*expected AveragePool, Conv"), ("MatMul", "must be a list")],
)
def test_an_operator_that_cannot_accumulate_low_is_refused(operators: Any, message: str) -> None:
    model = parse(CONSTRUCTS["a sequence"])
    with pytest.raises(OptionError, match=message):
        emulate_model(model, accumulate_low=operators)


def low_cases() -> list[Any]:
    def is_low(value: onnx.ValueInfoProto) -> bool:
        return value.type.tensor_type.elem_type in (TensorProto.FLOAT16, TensorProto.BFLOAT16)

    cases = {case.name: case for case in all_cases()}
    return [
        case
        for name, case in sorted(cases.items())
        if any(map(is_low, (*case.model.graph.input, *case.model.graph.output)))
        and not any(word in name for word in UNLOADABLE)
    ]


UNLOADABLE = (
    "causal_conv",  # operators of opsets that ONNX Runtime does not know yet
    "flexattention",
    "linear_attention",
    "swiglu",
    "ext_cache",
    "padded_kv",  # its Attention kernel rejects these in float32 as well
    "FLOAT8",  # types that ONNX Runtime has no numpy arrays or no CPU kernels for
    "e4m3fn",
    "INT4",
    "FLOAT4E2M1",
    "INT2",
    "fmod_0",  # Mod of floats with fmod=0, which ONNX allows since opset 13 on paper only
)


SHARES = 4
WRAPPING = ("qlinearmatmul_2D_int8", "qlinearmatmul_3D_int8")
"""Cases with sums that do not fit int8."""


@pytest.mark.parametrize("share", range(SHARES))
def test_a_backend_case_gives_what_it_should(share: int) -> None:
    chosen = low_cases()[share::SHARES]
    assert chosen
    for case in chosen:
        # onnx before 1.21 does not expect that what does not fit int8 wraps around
        if not (before("onnx", (1, 21)) and any(word in case.name for word in WRAPPING)):
            check_case(case)


def check_case(case: Any) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    model.ir_version = min(model.ir_version, NEWEST_IR)
    for entry in model.opset_import:
        if entry.domain == "":
            entry.version = min(entry.version, NEWEST_OPSET)
    low = next(t for t in LOW.values() if t.ir.value in _elements(model))
    for inputs, outputs in case.data_sets:
        names = [v.name for v in model.graph.input]
        found = evaluate(model, dict(zip(names, map(_array, inputs), strict=True)))
        for result, expected in zip(found.values(), map(_array, outputs), strict=True):
            assert result.dtype == expected.dtype, case.name
            a, b = (v.astype(np.float64) for v in (result, expected))
            np.testing.assert_allclose(a, b, rtol=low.rtol, atol=low.atol, err_msg=case.name)


def _elements(model: onnx.ModelProto) -> set[int]:
    return {v.type.tensor_type.elem_type for v in (*model.graph.input, *model.graph.output)}


def _array(value: Any) -> np.ndarray:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)
