"""What the pages' examples work on: a model, data, and copies of the checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from digits_file import keep_few

from amp_rewrite.cli.demo import IMAGE, demo_model

HERE = Path(__file__).parent
if str(HERE) not in sys.path:  # importmode importlib does not add it
    sys.path.append(str(HERE))

ROOT = HERE.parents[1]
CHECKOUT = (
    *("amp_rewrite", "benchmarks", "docs", "examples", "lists", "tests", "tools"),
    *("CHANGELOG.md", "CONTRIBUTING.md", "README.md", "action.yml", "pyproject.toml"),
    *(".pre-commit-config.yaml", ".pre-commit-hooks.yaml"),
)
"""What a recipe for contributors may read or change."""


@pytest.fixture(scope="session")
def materials(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files that examples read: a model, its data, digits, a step."""
    folder = tmp_path_factory.mktemp("materials")
    onnx.save(demo_model(), folder / "model.onnx")
    rng = np.random.default_rng(0)
    (folder / "samples").mkdir()
    for name in ("inputs.npz", "samples/0.npz", "samples/1.npz"):
        np.savez(folder / name, image=rng.standard_normal(IMAGE).astype(np.float32))
    foreign = ROOT / "tests" / "training" / "inject" / "foreign" / "onnx_ad_step.onnx"
    shutil.copy(foreign, folder / "exported.onnx")
    digits = [sys.executable, str(ROOT / "examples" / "digits.py")]
    subprocess.run(digits, cwd=folder, check=True)
    shutil.copy(folder / "digits_train.npz", folder / "few_digits.npz")
    keep_few(folder / "few_digits.npz", 128)
    return folder


@pytest.fixture
def workplace(materials: Path, tmp_path: Path) -> Path:
    """Return a folder of the test's own with the materials and the examples in it."""
    folder = tmp_path / "work"
    shutil.copytree(materials, folder)
    (folder / "examples").symlink_to(ROOT / "examples")
    return folder


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a copy of the checkout whose package is importable from it."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    for name in CHECKOUT:
        source = ROOT / name
        if source.is_dir():
            # with what Python has compiled, but for files that it is writing just now
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("*.pyc.*"))
        else:
            shutil.copy(source, folder / name)
    (folder / "amp_rewrite" / "lists").symlink_to(folder / "lists")
    return folder
