"""The rewriting wing works with the training wing, and the loop above it, taken away."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from house import FLOORS, PACKAGE, WALL

import amp_rewrite as amp
from amp_rewrite.targets import DATA

KEPT = ("cli", "amp_rewrite")
"""The rooms above both wings: a command of the rewriting wing loads nothing of the other."""

PROGRAM = """
import sys
import amp_rewrite as amp

assert amp.__file__.startswith(sys.argv[1]), amp.__file__
for name in ("TrainingSession", "optimizers", "train"):
    try:
        getattr(amp, name)
    except ModuleNotFoundError:
        continue
    raise AssertionError(f"{name} is still there")
result = amp.rewrite("m.onnx", precision="float16")
assert "float16" in amp.explain(result, "product")
assert amp.verify("m.onnx", result.model).ok
assert amp.convert("m.onnx", precision="bfloat16").result.changed
assert amp.check_lists().ok
"""

NO_CHECKOUT = """
import sys
sys.meta_path[:] = [f for f in sys.meta_path if "__editable__" not in str(f)]
"""
"""A package that was installed from a checkout is found there too, folder by folder."""

COMMANDS = (
    ("convert", "m.onnx", "-o", "out.onnx", "--html", "page.html"),
    ("explain", "m.onnx", "product"),
    ("verify", "m.onnx", "low.onnx"),
    ("check-lists",),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model, and a copy of the package without the training wing."""
    folder = tmp_path_factory.mktemp("wing")
    copy = folder / "amp_rewrite"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    if not (copy / "lists").exists():  # the package of a checkout
        shutil.copytree(str(DATA), copy / "lists")
    order = list(FLOORS)
    for room in set(order[order.index(WALL) :]) - set(KEPT):
        for top in {part.partition(".")[0] for part in FLOORS[room]}:
            if (copy / top).is_dir():
                shutil.rmtree(copy / top)
            (copy / f"{top}.py").unlink(missing_ok=True)
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[2,2] x) => (float[2,2] y) <float[2,2] w = {1, 2, 3, 4}> {
      [product] h = MatMul(x, w)
      y = Softmax(h)
    }"""
    model = onnx.parser.parse_model(text)
    onnx.save(model, folder / "m.onnx")
    amp.rewrite(model).save(folder / "low.onnx")
    (folder / "sitecustomize.py").write_text(NO_CHECKOUT, "utf-8")
    return folder


def run(folder: Path, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_library_converts_explains_verifies_and_checks_lists(folder: Path) -> None:
    run(folder, "-c", PROGRAM, str(folder))


@pytest.mark.share(2)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_command_of_the_rewriting_wing_runs(folder: Path, command: tuple[str, ...]) -> None:
    run(folder, "-m", "amp_rewrite", *command)
