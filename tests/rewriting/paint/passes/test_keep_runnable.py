"""What no kernel runs in the type that it came with is a danger of its own."""

from __future__ import annotations

import onnx
import pytest
from pass_marks import context_of, marks_of, painting_of
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite import targets
from amp_rewrite.dtypes import BFLOAT16
from amp_rewrite.kernels.runnable import can_run
from amp_rewrite.rewriting.paint.passes.keep_runnable import keep_runnable

AMID = (
    "g (float[N,8] x, bfloat16[8,8] w) => (float[N,8] y) {"
    " h = Cast<to = 16>(x) r = Reshape(h, s) m = MatMul(r, w) a = Relu(m) c = Cast<to = 1>(a)"
    " y = Sigmoid(c) }"
)


def model(text: str = AMID) -> onnx.ModelProto:
    """Return a model with a bfloat16 part."""
    made = parse(text)
    made.graph.initializer.append(
        onnx.helper.make_tensor("s", onnx.TensorProto.INT64, [2], [-1, 8])
    )
    return made


def found(made: onnx.ModelProto, target: str) -> dict[str, str]:
    """Return the operators that are dangerous -> why."""
    precision = "float16" if target == "webgpu" else "bfloat16"
    report = amp.check(made, run=False, target=target, precision=precision)
    return {d.op: d.reason for d in report.dangers}


def test_a_product_in_bfloat16_has_no_kernel_on_the_cpu() -> None:
    expected = {"MatMul": "no-kernel", "Relu": "no-kernel", "Cast": "rounded-before-float32"}
    assert found(model(), "cpu") == found(model(), "cpu,cuda") == expected


@pytest.mark.parametrize("target", ["cuda", "schema", "openvino"])
def test_elsewhere_it_is_none(target: str) -> None:
    assert found(model(), target) == {}


def test_float16_goes_to_the_float32_kernel_of_the_cpu_by_itself() -> None:
    low = model(AMID.replace("bfloat16", "float16").replace("to = 16", "to = 10"))
    for target in ("cpu", "cuda", "webgpu"):
        assert "no-kernel" not in found(low, target).values()


def test_repair_raises_it_so_that_the_file_loads() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    with pytest.raises(Exception, match="NOT_IMPLEMENTED"):
        onnxruntime.InferenceSession(model().SerializeToString())
    made = amp.repair(model(), target="cpu")
    assert {d.op for d in made.dangers} == {"Cast", "MatMul", "Relu"}
    onnxruntime.InferenceSession(amp.to_proto(made.model).SerializeToString())
    after = onnx.shape_inference.infer_shapes(amp.to_proto(made.model)).graph
    types = {v.name: v.type.tensor_type.elem_type for v in after.value_info}
    assert (types["r"], types["m"], types["a"]) == (1, 1, 1)


@pytest.mark.parametrize(("op", "expected"), [("Relu", True), ("Add", False), ("MatMul", False)])
def test_an_operator_that_consists_of_others_is_left_to_their_kernels(
    op: str, expected: bool
) -> None:
    webgpu = targets.find("webgpu")  # which has no kernel in bfloat16
    assert can_run(webgpu, ("", op, 18), BFLOAT16, [("T", "tensor(float)")]) is expected


def test_of_a_float32_model_a_missing_kernel_is_no_danger() -> None:
    wide = parse("g (float[N,8] x, float[8,8] w) => (float[N,8] y) { y = MatMul(x, w) }")
    report = amp.check(wide, run=False, target="cpu", precision="bfloat16")
    assert report.dangers == ()


@pytest.mark.parametrize(
    ("given", "target", "expected"),
    [
        ("ay", "cpu", "ay"),
        ("a", "cpu", "a"),
        ("cy", "cpu", "y"),
        ("c", "cpu", ""),
        ("", "cpu", ""),
        ("ay", "schema", ""),
        ("ay", None, ""),
        (None, "cpu", ""),
    ],
)
def test_what_was_given_low_and_no_kernel_runs_is_marked(
    given: str | None, target: str | None, expected: str
) -> None:
    text = """g (float[4,4] x, int8[4,4] n) => (float[4,4] y) {
        c = Cast<to = 1>(n) a = MatMul(x, c) y = Relu(a) }"""
    context = context_of(parse(text), BFLOAT16)
    mask = None if given is None else painting_of(context, given).allow
    found = None if target is None else targets.find(target)
    context = context_of(parse(text), BFLOAT16, given=mask, target=found)
    assert set(marks_of(keep_runnable, context)) == {*expected}
