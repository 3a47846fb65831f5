"""What a CUDA device needs and a CPU can check: spelled-out operators, kernels, driver."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import train_models
from onnx import parser

import amp_rewrite as amp
from amp_rewrite.graph.io.read_object import infer_types
from amp_rewrite.kernels.kernel_table import KernelTable
from amp_rewrite.loss_scaling import LossScaleOptimizer
from amp_rewrite.runtimes.ort import device as devices
from amp_rewrite.runtimes.ort.device import Device, load_libraries
from amp_rewrite.targets import CPU, CUDA
from amp_rewrite.training.session.compiled_program import make_static
from amp_rewrite.training.step.batch_norm import spell_out_batch_norms
from amp_rewrite.training.step.cut_step import cut_step
from amp_rewrite.training.step.read_info import read_info

NETWORKS: dict[str, Any] = {
    "mlp": (lambda: train_models.mlp((8, 16, 3)), {"x": (4, 8), "t": (4,)}),
    "digits_cnn": (train_models.digits_cnn, {"x": (4, 1, 8, 8), "t": (4,)}),
    "resnet": (train_models.resnet, {"x": (4, 3, 32, 32), "t": (4,)}),
    "transformer": (
        lambda: train_models.transformer(20, 8, 16, 2, 1),
        {"x": (4, 8), "t": (4, 8)},
    ),
    "bert": (
        lambda: train_models.bert_base(1, 16, 2, 50, 8),
        {"x": (4, 8), "t": (4,), "attention": (4, 8)},
    ),
}


def step_of(name: str, precision: str = "float32", mode: str = "select") -> ir.Model:
    optimizer = LossScaleOptimizer(amp.optimizers.Adam(1e-2), conditional=mode)
    loss = amp.value(amp.load(NETWORKS[name][0]()), "loss")
    return amp.build_step(optimizer.minimize(loss), precision=precision)


@pytest.mark.share(4)
@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_node_of_a_step_with_static_shapes_has_a_cuda_kernel(
    name: str, precision: str, tmp_path: Path
):
    """What ONNX Runtime leaves after folding constants is what would run."""
    step = step_of(name, precision)
    cut_step(step, read_info(step), ["loss", "grads_finite", "loss_scale"], defaults=False)
    model = step
    make_static(model, NETWORKS[name][1])
    spell_out_batch_norms(model)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(tmp_path / "folded.onnx")
    onnxruntime.InferenceSession(amp.to_proto(model).SerializeToString(), options, providers=[CPU])
    folded = amp.load(tmp_path / "folded.onnx")
    kinds = {node.op_type for node in folded.graph}
    assert kinds.isdisjoint({"If", "Loop", "BatchNormalization"})
    assert without_kernels(folded) == Counter()


def without_kernels(model: ir.Model) -> Counter[str]:
    table, types = KernelTable.load(CUDA), infer_types(model)
    missing: Counter[str] = Counter()
    for node in model.graph:
        opset = model.graph.opset_imports[node.domain]
        schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
        ports = [*zip(schema.inputs, node.inputs), *zip(schema.outputs, node.outputs)]  # noqa: B905
        found = {f.type_str: types[v] for f, v in ports if v is not None and v in types}
        missing[node.op_type] += not table.has_kernel(node.domain, node.op_type, opset, found)
    return +missing


BN = """<ir_version: 8, opset_import: ["": {opset}]>
    g (float[N, 3, H] x, float[3] s, float[3] b, float[3] m, float[3] v)
    => (float[N, 3, H] y, float[3] m2, float[3] v2) {{
        y, m2, v2 = BatchNormalization <training_mode: int = 1, epsilon: float = 0.01,
                                        momentum: float = 0.8> (x, s, b, m, v)
    }}"""


@pytest.mark.parametrize("opset", [15, 18])
def test_a_spelled_out_batch_normalization_computes_the_same(opset: int):
    proto = parser.parse_model(BN.format(opset=opset))
    model = amp.load(proto)
    spell_out_batch_norms(model)
    assert "BatchNormalization" not in {node.op_type for node in model.graph}
    onnx.checker.check_model(amp.to_proto(model), full_check=True)
    rng = np.random.default_rng(0)
    feeds = {"x": (rng.normal(size=(5, 3, 4)) * 3 + 1).astype(np.float32)}
    feeds |= {k: rng.uniform(0.5, 2, 3).astype(np.float32) for k in "sbmv"}
    models = (amp.to_proto(model), proto)
    sessions: list[Any] = [
        onnxruntime.InferenceSession(m.SerializeToString(), providers=[CPU]) for m in models
    ]
    found, expected = (session.run(None, feeds) for session in sessions)
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


def test_cuda_libraries_that_pip_installed_are_loaded_for_a_cuda_device_only(
    monkeypatch: pytest.MonkeyPatch,
):
    calls: list[str] = []
    runtime = SimpleNamespace(preload_dlls=lambda: calls.append("loaded"))
    monkeypatch.setattr(devices, "import_runtime", lambda: runtime)
    load_libraries(Device())
    assert calls == []
    load_libraries(Device("cuda"))
    assert calls == ["loaded"]
