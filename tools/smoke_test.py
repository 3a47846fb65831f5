"""Smoke test of an installed wheel: import, rewrite, run, train. Run it outside the source tree."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime

import amp_rewrite as amp
from amp_rewrite.dtypes import Precision
from amp_rewrite.page.overview import Evidence
from amp_rewrite.page.render import write_page
from amp_rewrite.rewriting.report.next_steps import Names

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
mlp (float[2, 32] x) => (float[2, 32] y) <float[32, 32] w = {%s}>
{
    h = MatMul(x, w)
    r = Relu(h)
    y = MatMul(r, w)
}
"""

READ_LISTS = """
import sys
from amp_rewrite.oplists.files import builtin_names, read
for name in builtin_names():
    read([name], precision=None, targets=None)
sys.exit("lists were parsed, which the wheel was built to spare" if "yaml" in sys.modules else None)
"""


def check_imports() -> None:
    """Import every module and require that all of them come from the environment."""
    home = Path(str(amp.__file__)).resolve().parent
    if Path(sys.prefix).resolve() not in home.parents:
        raise SystemExit(f"amp_rewrite comes from {home}, not from {sys.prefix}")
    modules = [m.name for m in pkgutil.walk_packages([str(home)], "amp_rewrite.")]
    for name in modules:
        importlib.import_module(name)
    print(f"imported amp_rewrite and {len(modules)} modules from {home}")


def check_lists() -> None:
    """Require that the wheel has the op lists as they are parsed."""
    subprocess.run([sys.executable, "-c", READ_LISTS], check=True)


def check_rewrite(folder: Path, precision: Precision) -> None:
    """Rewrite a two-layer model, save it, check it; run it if it is float16."""
    weights = np.random.default_rng(0).uniform(-0.5, 0.5, 32 * 32).astype(np.float32)
    model = onnx.parser.parse_model(MODEL % ", ".join(f"{w:.6f}" for w in weights))
    source, target = folder / "in.onnx", folder / f"{precision}.onnx"
    onnx.save(model, source)
    amp.rewrite(source, precision=precision).save(target)
    onnx.checker.check_model(onnx.load(target), full_check=True)
    if target.stat().st_size >= source.stat().st_size:
        raise SystemExit(f"{precision}: the rewritten model is not smaller")
    if precision == "float16":
        compare(source, target)
    print(f"{precision}: {source.stat().st_size} -> {target.stat().st_size} bytes")


def compare(source: Path, target: Path) -> None:
    """Run both models on one input and require that they agree to float16's accuracy."""
    x = np.random.default_rng(1).standard_normal((2, 32)).astype(np.float32)
    outputs = [
        onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(["y"], {"x": x})
        for path in (source, target)
    ]
    np.testing.assert_allclose(
        np.asarray(outputs[1][0]), np.asarray(outputs[0][0]), rtol=1e-2, atol=1e-2
    )


def check_page(folder: Path) -> None:
    """Write the page of what check_rewrite has saved, whose parts are files of the wheel."""
    page = folder / "page.html"
    names = Names("in.onnx", "float16.onnx")
    result = amp.rewrite(folder / "in.onnx")
    write_page(page, result, result.report, Evidence(names))
    text = page.read_text("utf-8")
    if not all(
        part in text for part in ("var dagre=", "function layoutOf", "--low-fill", "in.onnx")
    ):
        raise SystemExit("the page lacks a part")
    print(f"page: {len(text)} characters")


def check_training(folder: Path) -> None:
    """Train what check_rewrite has saved, from a step file, and require that the loss falls."""
    model = amp.load(folder / "in.onnx")
    loss = amp.losses.mean_squared_error(model, "y", "t")
    amp.save(amp.build_step(amp.optimizers.Adam(1e-2).minimize(loss)), folder / "step.onnx")
    x = np.random.default_rng(1).standard_normal((2, 32)).astype(np.float32)
    with amp.TrainingSession(folder / "step.onnx") as session:
        losses = [float(session.run({"x": x, "t": np.zeros_like(x)})["loss"]) for _ in range(9)]
        session.export(folder / "trained.onnx")
    onnx.checker.check_model(onnx.load(folder / "trained.onnx"), full_check=True)
    if not losses[-1] < losses[0] / 2:
        raise SystemExit(f"training does not lower the loss: {losses}")
    print(f"training: loss {losses[0]:.3g} -> {losses[-1]:.3g}")


if __name__ == "__main__":
    check_imports()
    check_lists()
    with tempfile.TemporaryDirectory() as name:
        for chosen in ("float16", "bfloat16"):
            check_rewrite(Path(name), chosen)
        check_page(Path(name))
        check_training(Path(name))
