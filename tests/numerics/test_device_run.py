"""Running a model on a provider: outputs, times, and who took which node."""

import json

import numpy as np
import onnx.parser
import pytest

from amp_rewrite.numerics.device_run import DeviceRun, RanNode, run_on
from amp_rewrite.runtimes.openvino.package import computes_in
from amp_rewrite.targets import CPU

MODEL = onnx.parser.parse_model(
    '<ir_version: 9, opset_import: ["" : 17]>'
    "g (float[2,2] x) => (float[2,2] y) { [product] h = MatMul(x, x) [root] y = Sqrt(h) }"
)
FEEDS = {"x": np.array([[1, 2], [3, 4]], np.float32)}


def test_a_run_returns_outputs_times_and_places() -> None:
    found = run_on(MODEL, FEEDS, repeat=3)
    np.testing.assert_allclose(found.outputs["y"], np.sqrt(FEEDS["x"] @ FEEDS["x"]), rtol=1e-6)
    assert found.provider == CPU
    assert found.first > 0
    assert len(found.seconds) == 3
    assert [(node.name, node.op, node.provider) for node in found.nodes] == [
        ("product", "MatMul", CPU),
        ("root", "Sqrt", CPU),
    ]
    assert {node.provider for node in found.nodes} == {CPU}


def test_a_report_says_what_other_providers_took() -> None:
    nodes = (
        RanNode("a", "Conv", "Gpu", 5),
        RanNode("b", "Conv", "Gpu", 6),
        RanNode("c", "NonZero", CPU, 1, "float32", ("c",)),
    )
    found = DeviceRun("Gpu", 1.5, (0.5, 0.25, 1.0), nodes, {})
    assert found.to_text().splitlines() == [
        "Gpu: first run 1.5 s, then 0.5 s (median of 3, 0.25 to 1)",
        "Gpu took 2 nodes: 2 Conv",
        f"{CPU} took 1 node: 1 NonZero",
        "computed in float32, 0.001 ms of the first run: 1 NonZero",
    ]
    content = json.loads(found.to_json())
    assert content["seconds"] == [0.5, 0.25, 1.0]
    assert content["nodes"][2] == {
        "name": "c",
        "op": "NonZero",
        "provider": CPU,
        "microseconds": 1,
        "type": "float32",
        "covers": ["c"],
    }


@pytest.mark.webgpu
def test_webgpu_takes_the_nodes_that_it_has_kernels_for(webgpu: str) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17]>'
        "g (float16[2,2] x) => (float16[2,2] y) { [product] h = MatMul(x, x) [sign] y = Sign(h) }"
    )
    found = run_on(model, {"x": np.full((2, 2), -3, np.float16)}, webgpu, repeat=1)
    np.testing.assert_array_equal(found.outputs["y"], np.ones((2, 2)))
    assert {node.name for node in found.nodes if node.provider == webgpu} >= {"product"}
    assert "Sign" in {node.op for node in found.nodes if node.provider != webgpu}


def test_the_original_runs_in_turn_where_it_is_given() -> None:
    found = run_on(MODEL, FEEDS, repeat=2, original=MODEL)
    assert {name: len(seconds) for name, seconds in found.beside.items()} == {"the original": 2}
    assert "the original: " in found.to_text()
    assert found.notes == ()


@pytest.mark.openvino
def test_a_run_on_openvino_says_what_it_computed_in_and_what_it_would_choose(openvino) -> None:
    found = run_on(MODEL, FEEDS, "OpenVINO", repeat=2, original=MODEL)
    np.testing.assert_allclose(found.outputs["y"], np.sqrt(FEEDS["x"] @ FEEDS["x"]), rtol=1e-5)
    assert {node.type for node in found.nodes} == {"float32"}
    own = "the original with OpenVINO's own bfloat16"
    assert set(found.beside) == {"the original", *([own] if computes_in("bfloat16") else [])}
