"""What ONNX Runtime loads in float16 on Arm, between convolutions, as the kernel table says."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx.parser
import pytest
from kernel_rows import UNLOADABLE

import amp_rewrite as amp
from amp_rewrite.cli.main import main
from amp_rewrite.targets import ARM64

pytestmark = pytest.mark.arm64

TOOL = Path(__file__).parents[2] / "tools" / "arm64" / "probe_layouts.py"


@pytest.fixture(name="tool", scope="module")
def load_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("probe_layouts", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


POOLS = [
    *(("MaxPool", opset) for opset in (8, 10, 11, 12, 17, 22)),
    *(("AveragePool", opset) for opset in (11, 17, 18, 19, 22)),
]


@pytest.mark.parametrize(("op", "opset"), POOLS)
@pytest.mark.usefixtures("arm64")
def test_pools_load_where_the_table_says(tool: ModuleType, op: str, opset: int) -> None:
    since = onnx.defs.get_schema(op, opset).since_version
    ranges = UNLOADABLE[ARM64, "", op]
    refused = any(first <= since <= (last or since) for first, last in ranges)
    assert (tool.probe(tool.NODES[op], opset) != "loads") == refused


GELUS = ("Gelu, spelled out", "BiasGelu, spelled out", "Add of a constant", "SiLU, spelled out")


@pytest.mark.parametrize("name", GELUS)
@pytest.mark.usefixtures("arm64")
def test_what_the_runtime_fuses_to_gelu_loads(tool: ModuleType, name: str) -> None:
    assert tool.probe(tool.NODES[name], 17) == "loads"


def test_a_biased_gelu_behind_a_product_is_right(arm64: Any) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float16[3,8,16] x) => (float16[3,8,16] y)
    { p = MatMul(x, w) h = Add(p, b) d = Div(h, root) e = Erf(d) f = Add(e, one)
      m = Mul(h, f) n = Mul(m, half) y = MatMul(n, w) }"""
    rng, model = np.random.default_rng(0), onnx.parser.parse_model(text)
    arrays = {"w": rng.normal(size=(16, 16)) / 4, "b": rng.normal(size=16) / 4}
    numbers = {"root": 2**0.5, "one": 1.0, "half": 0.5}
    for name, array in (arrays | numbers).items():
        low = np.asarray(array, np.float16)
        model.graph.initializer.append(onnx.numpy_helper.from_array(low, name))
    feeds = {"x": rng.normal(size=(3, 8, 16)).astype(np.float16)}
    found, expected = (
        evaluator.run(feeds)["y"].astype(np.float64)
        for evaluator in (arm64(model), amp.Evaluator(model, emulate=False))
    )
    assert np.linalg.norm(found - expected) <= 0.005 * np.linalg.norm(expected)


def test_the_demo_of_the_readme_holds_there(arm64: Any, tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    with pytest.raises(SystemExit) as exited:
        main(["demo", "--folder", str(folder), "--target", ARM64])
    assert exited.value.code in (None, 0)
    low = folder / "demo.float16.onnx"
    feeds = dict(np.load(folder / "demo.npz"))
    expected = amp.evaluate(folder / "demo.onnx", feeds)
    found = arm64(low).run(feeds)
    for name, values in expected.items():
        assert np.linalg.norm(found[name] - values) <= 0.045 * np.linalg.norm(values)


@pytest.mark.parametrize("axes", [1, 2])
def test_a_pool_whose_indices_are_read_runs(axes: int, arm64: Any) -> None:
    """ONNX Runtime loses the indices of a float16 pool between convolutions."""
    ones = ",".join("1" * axes)
    window = f"kernel_shape = [{ones.replace('1', '2')}], strides = [{ones.replace('1', '2')}]"
    lengths = ",".join(["8"] * axes)
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[1,4,{lengths}] x, float[4,4,{ones}] k) => (float[1,4,{lengths}] y)
    {{ a = Conv(x, k) p, i = MaxPool<{window}>(a) m = MaxUnpool<{window}>(p, i) y = Conv(m, k) }}"""
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    feeds = {
        "x": rng.normal(size=(1, 4, *[8] * axes)).astype(np.float32),
        "k": rng.normal(size=(4, 4, *[1] * axes)).astype(np.float32),
    }
    low = amp.rewrite(model, target=ARM64).model
    found = arm64(low).run(feeds)["y"]
    np.testing.assert_allclose(found, amp.evaluate(low, feeds)["y"], atol=0.05)
