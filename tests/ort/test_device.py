"""What depends on the device: where low precision pays, how ONNX Runtime reserves memory."""

import numpy as np
import onnx
import onnxruntime
import pytest

import amp_rewrite as amp
from amp_rewrite.ort.device import Device, reason_against
from amp_rewrite.train.session.programs import default_options
from amp_rewrite.train.step.build_step import whole_step


@pytest.mark.parametrize(
    ("precision", "device", "capability", "text"),
    [
        ("float32", Device(), None, None),
        ("float16", Device(), None, "float16 on a CPU"),
        ("bfloat16", Device(), None, "bfloat16 on a CPU"),
        ("float32", Device("cuda"), 6.1, None),
        ("float16", Device("cuda"), 6.1, "its compute capability is 6.1"),
        ("float16", Device("cuda"), 7.0, None),
        ("float16", Device("cuda"), None, None),
        ("float16", Device("dml"), None, None),
    ],
)
def test_devices_that_do_not_pay_have_a_reason(
    precision: str, device: Device, capability: float | None, text: str | None
) -> None:
    reason = reason_against(precision, device, capability)
    assert reason is None if text is None else reason is not None and text in reason


@pytest.mark.parametrize(
    ("rows", "mode", "device", "expected"),
    [
        (512, "if", Device(), False),
        (512, "select", Device(), True),
        (512, None, Device(), True),
        (511, "if", Device(), True),
        (512, "if", Device("cuda"), True),
    ],
)
def test_memory_patterns_are_left_out_where_an_if_updates_large_states(
    rows: int, mode: str | None, device: Device, expected: bool
) -> None:
    graph = onnx.parser.parse_graph(
        "f (float[512] x) => (float loss) { p = MatMul(w, x) loss = ReduceSum<keepdims=0>(p) }"
    )
    weights = np.zeros((rows, 512), np.float32)
    graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    opsets = [onnx.helper.make_opsetid("", 17)]
    model = amp.load(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8))
    optimizer = amp.optimizers.GradientDescent(0.1)
    if mode is not None:
        optimizer = amp.LossScaleOptimizer(optimizer, conditional=mode)
    step = whole_step(optimizer.minimize(amp.value(model, "loss")))
    options = default_options(onnxruntime, 1, step, device)
    assert options.enable_mem_pattern is expected
