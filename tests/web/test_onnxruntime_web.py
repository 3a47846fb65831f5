"""Converted models where they are to run: in a page, and in Node on the WebGPU of Chromium."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from page_server import SECONDS, shown

import amp_rewrite as amp
from amp_rewrite import targets
from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.numerics.emulate.low_sums import kept_low

Array = np.ndarray[Any, Any]

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "webgpu.md"

IMAGE = np.sin(np.arange(28 * 28)).astype(np.float32).reshape(1, 1, 28, 28)
"""What the page of the documentation feeds."""

OVERFLOW = onnx.parser.parse_model(
    '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float y)'
    "{ h = Cast<to: int = 10>(x) square = Mul(h, h) back = Div(square, h)"
    " all = ReduceMax<keepdims: int = 0>(back) y = Cast<to: int = 1>(all) }"
)


def convolution() -> onnx.ModelProto:
    """Return a classifier of images of 28 x 28: Conv, Relu, MaxPool, Gemm, Softmax."""
    rng = np.random.default_rng(0)
    taps, rows = rng.normal(0, 0.3, (8, 1, 3, 3)), rng.normal(0, 0.05, (10, 1568))
    first, last = (",".join(map(str, a.astype(np.float32).ravel())) for a in (taps, rows))
    return onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]> g (float[1,1,28,28] x) => (float[1,10] y)
        <float[8,1,3,3] w = {{{first}}}, float[10,1568] v = {{{last}}},
         float[1,8,28,28] c, float[1,8,28,28] r, float[1,8,14,14] p, float[1,1568] f> {{
            c = Conv<pads: ints = [1, 1, 1, 1]>(x, w) r = Relu(c)
            p = MaxPool<kernel_shape: ints = [2, 2], strides: ints = [2, 2]>(r)
            f = Flatten(p) l = Gemm<transB: int = 1>(f, v) y = Softmax(l) }}"""
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, modules: Path) -> dict[str, Path]:
    """Return what a page reads: the model, what became of it, and the packages."""
    folder = tmp_path_factory.mktemp("page")
    onnx.save(convolution(), folder / "model.onnx")
    amp.save(amp.rewrite(convolution(), target="webgpu").model, folder / "model.fp16.onnx")
    names = ("model.onnx", "model.fp16.onnx")
    return {**{name: folder / name for name in names}, "node_modules": modules}


def documented_page() -> str:
    """Return the page of docs/webgpu.md."""
    text = DOCUMENTATION.read_text("utf-8")
    return text.partition("```html\n")[2].partition("```")[0]


def numbers(text: str) -> Array:
    return np.array(text.rpartition(":")[2].split(), np.float64)


def distance(found: Array, expected: Array) -> float:
    return float(np.linalg.norm(found - expected.ravel()) / np.linalg.norm(expected))


@pytest.mark.browser
@pytest.mark.parametrize(
    ("flags", "says", "limit"),
    [
        (["--enable-unsafe-webgpu"], "model.onnx on webgpu", 1e-5),
        (["--disable-features=WebGPU"], "model.fp16.onnx on wasm", 2e-3),
    ],
)
def test_the_documented_page_shows_what_the_model_computes(
    flags: list[str], says: str, limit: float, files: dict[str, Path], program: str
) -> None:
    found = shown(program, documented_page(), files, *flags)
    assert found.startswith(says), found
    original = amp.evaluate(convolution(), {"x": IMAGE}, emulate=False)["y"]
    assert distance(numbers(found), original) < limit


@pytest.mark.webgpu
@pytest.mark.usefixtures("webgpu")
def test_float16_on_dawn_is_what_was_predicted(
    files: dict[str, Path], modules: Path, node: str, tmp_path: Path
) -> None:
    onnx.save(OVERFLOW, tmp_path / "overflow.onnx")
    image = {"type": "float32", "dims": IMAGE.shape, "data": IMAGE.ravel().tolist()}
    pair = {"type": "float32", "dims": [2], "data": [1, 1000]}
    low = files["model.fp16.onnx"]
    requests = [
        {"model": str(low), "feeds": {"x": image}},
        {"model": str(tmp_path / "overflow.onnx"), "feeds": {"x": pair}},
    ]
    script = Path(__file__).parent / "on_dawn.mjs"
    # Without --liftoff-only V8 takes two minutes to optimise the WebAssembly.
    done = subprocess.run(
        [node, "--liftoff-only", str(script), str(modules)],
        input=json.dumps(requests),
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    classes, overflow = json.loads(done.stdout.splitlines()[-1])
    assert overflow["y"] == ["Infinity"], "1000 x 1000 / 1000 is infinite in float16 alone"
    sums = kept_low(targets.find("webgpu"), FLOAT16)
    emulated = amp.evaluate(low, {"x": IMAGE}, accumulate_low=sums)["y"]
    original = amp.evaluate(convolution(), {"x": IMAGE})["y"]
    found = np.array(classes["y"], np.float64)
    assert distance(found, emulated) < distance(found, original) / 3
    assert distance(found, original) < 2e-3
