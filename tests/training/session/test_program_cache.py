"""The options with which the programs of a step are loaded."""

import numpy as np
import onnx
import pytest

import amp_rewrite as amp
from amp_rewrite.runtimes.ort.device import Device
from amp_rewrite.training.session.program_cache import default_options
from amp_rewrite.training.step.step import whole_step


@pytest.mark.parametrize(
    ("rows", "mode", "device", "expected"),
    [
        (512, "if", Device(), False),
        (512, "select", Device(), False),
        (512, None, Device(), False),
        (511, "if", Device(), True),
        (512, "if", Device("cuda"), True),
    ],
)
def test_memory_patterns_are_left_out_where_states_are_large(
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
    options = default_options(1, step, device)
    assert options.enable_mem_pattern is expected
