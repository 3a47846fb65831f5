"""What is rewritten stays what it is when it is rewritten again, with its opset raised or not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.dtypes import Precision
from amp_rewrite.numerics.convert.opset import upgraded
from amp_rewrite.rewriting.read_source import read_source

RNG = np.random.default_rng(0)
WEIGHTS = {
    "wide": (64, 1024),
    "narrow": (1024, 64),
    "w": (64, 64),
    "k": (64, 1, 3),
    "c": (64, 64, 3),
}
TURN = "t = Transpose<perm = [0,2,1]>(h)"
NETWORKS = {
    "a small convolution": f"""a = MatMul(x, wide) h = MatMul(a, narrow) {TURN}
        d = Conv<pads = [1,1], group = 64>(t, k) u = Transpose<perm = [0,2,1]>(d)
        y = MatMul(u, w)""",
    "a large convolution": f"""h = MatMul(x, w) {TURN} d = Conv<pads = [1,1]>(t, c)
        u = Transpose<perm = [0,2,1]>(d) y = MatMul(u, w)""",
    "an idle Cast": "h = MatMul(x, w) i = Cast<to = 1>(h) r = Relu(i) y = MatMul(r, w)",
}
WAYS = [("float16", "cuda"), ("float16", "webgpu"), ("bfloat16", "cuda"), ("bfloat16", "openvino")]


@pytest.mark.parametrize(("precision", "target"), WAYS)
@pytest.mark.parametrize(
    "network",
    [
        "a small convolution",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("a large convolution", "an idle Cast")),
    ],
)
def test_a_second_rewrite_changes_nothing(
    network: str, precision: Precision, target: str, tmp_path: Path
) -> None:
    source = parse(
        f"""<ir_version: 9, opset_import: ["" : 20]>
        g (float[1,16,64] x) => (float[1,16,64] y) {{ {NETWORKS[network]} }}"""
    )
    read = {name for node in source.graph.node for name in node.input}
    for name in WEIGHTS.keys() & read:
        array = (RNG.standard_normal(WEIGHTS[name]) / 8).astype(np.float32)
        source.graph.initializer.append(numpy_helper.from_array(array, name))
    options = amp.RewriteOptions(precision=precision, target=target)
    first, second = tmp_path / "first.onnx", tmp_path / "second.onnx"
    onnx.save(source, tmp_path / "source.onnx")
    raised = upgraded(
        read_source(tmp_path / "source.onnx", inline_functions=False), "auto", options
    )[1]
    amp.save(amp.rewrite(source if raised is None else raised.model, options), first)
    raised = upgraded(read_source(first, inline_functions=False), "auto", options)[1]
    assert raised is None or raised.opset == raised.before
    amp.save(amp.rewrite(first, options), second)
    assert second.read_bytes() == first.read_bytes()


def test_weights_that_a_ConstantOfShape_makes_are_known_in_16_bits_too(tmp_path: Path) -> None:  # noqa: N802 an operator
    layers = "".join(
        f"w{k} = ConstantOfShape<value = float[1] {{0.9}}>(lengths) "
        f"h{k} = MatMul({'x' if k == 0 else f'r{k - 1}'}, w{k}) r{k} = Relu(h{k}) "
        for k in range(4)
    )
    source = parse(
        f"""<ir_version: 9, opset_import: ["" : 20]> g (float[1,64] x) => (float[1,64] y)
        <int64[2] lengths = {{64, 64}}> {{ {layers} y = Softmax(r3) }}"""
    )
    first = amp.rewrite(source, target="webgpu", keep_io_types=False)
    assert "likely" in (first.report.likely_overflow or "")
    amp.save(first, tmp_path / "first.onnx")
    second = amp.rewrite(tmp_path / "first.onnx", target="webgpu", keep_io_types=False)
    assert not second.changed
    assert not amp.repair(tmp_path / "first.onnx", target="webgpu").changed
