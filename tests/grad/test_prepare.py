"""What becomes of a model that is prepared for gradients."""

import resource
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

from amp_rewrite.errors import GradientError
from amp_rewrite.grad.prepare import prepare


def exponential(opset: int, ir_version: int) -> ir.Model:
    header = f'<ir_version: {ir_version}, opset_import: ["": {opset}]>'
    return ir.from_proto(
        onnx.parser.parse_model(f"{header} g (float x) => (float y) {{ y = Exp(x) }}")
    )


def test_an_old_opset_is_refused_with_what_to_do() -> None:
    with pytest.raises(
        GradientError, match=r"ai\.onnx 15; expected ai\.onnx 16.*version_converter"
    ):
        prepare(exponential(15, 8))


def test_models_from_before_bare_initializers_are_brought_up() -> None:
    model = exponential(18, 3)
    prepare(model)
    assert model.ir_version == 4


def peak() -> int:
    """Return the most memory that this process has had, in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def test_a_vector_of_a_million_million_elements_takes_no_memory() -> None:
    model = ir.from_proto(
        onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
            g (float[2147483648, 256] x) => (float[N] y)
            <int64[1] flat = {-1}, int64[1] zero = {0}, int64[1] one = {1}> {
                f = Reshape(x, flat)  y = Slice(f, zero, one) }""")
    )
    limits = resource.getrlimit(resource.RLIMIT_AS)
    reserved = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
    before = peak()
    resource.setrlimit(resource.RLIMIT_AS, (reserved + (2 << 30), limits[1]))
    try:
        prepare(model)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert peak() - before < 1 << 28
    assert str(model.graph.outputs[0].shape) == "[1]"


def test_shapes_behind_fused_operators_are_those_of_what_was_fused() -> None:
    text = """<ir_version: 8, opset_import: ["": 18, "com.microsoft": 1]>
        g (float[N, S, 4] x, float[N, S, 4] skip) => (float[N, S, M] y)
        <float[4] w = {1, 1, 1, 1}, float[1, 4] k = {1, 1, 1, 1}> {
            h = com.microsoft.SkipLayerNormalization (x, skip, w)
            y = com.microsoft.FusedMatMul <transB = 1> (h, k) }"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    before = (len(model.graph), [*model.graph.initializers])
    prepare(model)
    h = model.graph[0].outputs[0]
    assert h.dtype is ir.DataType.FLOAT
    assert list(h.shape or ()) == ["N", "S", 4]
    assert (len(model.graph), [*model.graph.initializers]) == before


def test_a_recurrent_layer_tells_the_rank_of_what_it_reads() -> None:
    text = """<ir_version: 8, opset_import: ["": 18]>
        g (float[N] x, int64[k] to, float[1, 4, 2] w, float[1, 4, 4] r) => (float[a, b, c, d] y) {
            shaped = Reshape (x, to)
            y, h = RNN <hidden_size = 4> (shaped, w, r) }"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    shaped = model.graph[0].outputs[0]
    prepare(model)
    assert shaped.shape is not None
    assert len(shaped.shape) == 3
