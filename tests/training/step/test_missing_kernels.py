"""A step that a target cannot load is refused."""

from __future__ import annotations

from typing import Any

import onnx
import onnx.parser
import pytest

import amp_rewrite as amp
from amp_rewrite.errors import UnloadableError

POOL = "AveragePool<kernel_shape = [2, 2], strides = [2, 2]>"
BODIES = {
    "a float16 pool of a new opset": (
        19,
        f"c = Conv(x, k) h = Cast<to = 10>(c) q = {POOL}(h) p = Cast<to = 1>(q)",
        "AveragePool of tensor(float16), opset 19",
    ),
    "a Conv of doubles": (
        17,
        f"d = Cast<to = 11>(x) e = Cast<to = 11>(k) s = Conv(d, e) c = Cast<to = 1>(s) "
        f"p = {POOL}(c)",
        "Conv of tensor(double), opset 17",
    ),
}
FINE = {
    "a float16 pool": (17, BODIES["a float16 pool of a new opset"][1]),
    "a float32 pool of a new opset": (19, f"c = Conv(x, k) p = {POOL}(c)"),
    "operators that are functions": (18, f"c = Conv(x, k) m = Mish(c) p = {POOL}(m)"),
    "a custom operator": (17, f"c = Conv(x, k) m = mine.Own(c) o = Add(c, c) p = {POOL}(o)"),
}


def model(opset: int, body: str) -> onnx.ModelProto:
    """Return a classifier of images (N, 1, 6, 6) with a body from x to p, (N, 1, 2, 2)."""
    return onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}, "mine" : 1]> '
        "g (float[N,1,6,6] x, int64[N] labels) => (float[N,2] logits) "
        "<float[1,1,3,3] k = {0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9}, "
        "float[4,2] w = {1,2,3,4,5,6,7,8}> "
        f"{{ {body} f = Flatten(p) logits = MatMul(f, w) }}"
    )


def step(opset: int, body: str, target: str = "cpu-arm64") -> Any:
    loss = amp.losses.softmax_cross_entropy(amp.load(model(opset, body)), "logits", "labels")
    train_op = amp.optimizers.GradientDescent(0.1).minimize(loss)
    return amp.build_step(train_op, precision="float16", target=target)


@pytest.mark.parametrize("name", BODIES)
def test_a_step_with_a_node_that_arm_has_no_kernel_for_is_refused(name: str) -> None:
    opset, body, found = BODIES[name]
    with pytest.raises(UnloadableError, match="no kernel for a node") as caught:
        step(opset, body)
    assert found in str(caught.value)
    assert step(opset, body, "cuda").graph


@pytest.mark.parametrize("name", FINE)
def test_other_steps_are_given_out(name: str) -> None:
    assert step(*FINE[name]).graph
