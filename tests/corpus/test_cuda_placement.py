"""On the CUDA provider rewritten models load, stay on the device, and keep their fusions."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import onnx
import pytest
from catalog import REAL
from cuda_stub import Placement, needs_stub, placements
from thinned import thinned

import amp_rewrite as amp
from amp_rewrite.cli import main
from amp_rewrite.dtypes import LOW, Precision

pytestmark = needs_stub

EXAMPLES = Path(__file__).parents[2] / "examples"
LARGEST = 60_000_000
"""The largest model that is placed, in bytes."""

PRECISIONS: tuple[Precision, ...] = ("float16", "bfloat16")
BATCH = 8
SOME = ("light_shufflenet", "magika", "oww_hey_jarvis", "ppocr_cls", "silero_v6_ifless")
GROUPS = {"some": SOME, "others": [name for name in REAL if name not in SOME]}
"""Models that are placed together; the fast suite has small ones of each kind."""


ENDS = {"magika": Counter(Gemm=1)}
"""What is fused no more: a last bias that stays float32 in front of the output (widen-ends)."""


@pytest.fixture(scope="module", params=thinned(GROUPS, lambda group: group == "others"))
def found(
    request: pytest.FixtureRequest, corpus: Any, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str], Placement]:
    """Return what becomes of each model of a group, as it is and rewritten, in one process."""
    folder = tmp_path_factory.mktemp("rewritten")
    paths: dict[tuple[str, str], Path] = {}
    for name in GROUPS[request.param]:
        original = corpus.path(name)
        if original.stat().st_size > LARGEST:
            continue
        paths[name, "float32"] = original
        for precision in PRECISIONS:
            paths[name, precision] = folder / f"{name}.{precision}.onnx"
            amp.rewrite(original, precision=precision).save(paths[name, precision])
    placed = placements(paths.values())
    return {key: placed[path] for key, path in paths.items()}


def fusions(path: Path, placement: Placement) -> Counter[str]:
    """Return the operators that the provider made, which the model does not have."""
    written = {node.op_type for node in onnx.load(path).graph.node}
    return Counter({op: n for op, n in placement.operators.items() if op not in written})


@pytest.mark.parametrize("precision", PRECISIONS)
def test_rewritten_models_are_placed_as_their_originals(
    found: dict[tuple[str, str], Placement], corpus: Any, precision: str
) -> None:
    names = [name for name, form in found if form == "float32"]
    faults: dict[str, Any] = {}
    for name in names:
        before, after = found[name, "float32"], found[name, precision]
        lost = fusions(corpus.path(name), before) - after.operators - ENDS.get(name, Counter())
        if before.error or after.error or after.cpu - before.cpu or lost:
            left = after.cpu - before.cpu
            faults[name] = {"errors": (before.error, after.error), "left": left, "lost": lost}
    assert names
    assert faults == {}


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the network of the examples."""
    pytest.importorskip("sklearn")
    folder = tmp_path_factory.mktemp("digits")
    subprocess.run([sys.executable, str(EXAMPLES / "digits.py")], cwd=folder, check=True)
    return folder


def train_step(folder: Path, precision: str, conditional: str) -> Path:
    """Write a step of the digits network, with a BatchNormalization, as the examples do."""
    path = folder / f"step.{precision}.{conditional}.onnx"
    loss = ["--loss", "softmax-cross-entropy:logits:t", "--loss-scale", "dynamic"]
    options = ["--precision", precision, "--conditional", conditional, "--quiet"]
    with pytest.raises(SystemExit) as left:
        main(
            [
                "train-step",
                os.fspath(folder / "digits.onnx"),
                "-o",
                os.fspath(path),
                *loss,
                *options,
            ]
        )
    assert left.value.code == 0
    return path


@pytest.mark.share(5, each="precision")
@pytest.mark.parametrize("conditional", ["if", "select"])
@pytest.mark.parametrize("precision", ["float32", *LOW])
def test_a_step_file_loads_and_keeps_its_nodes_on_the_device(
    digits: Path, precision: str, conditional: str
) -> None:
    path = train_step(digits, precision, conditional)
    plain = train_step(digits, "float32", conditional)
    placed = placements({plain, path})
    assert [placement.error for placement in placed.values()] == [None] * len(placed)
    assert placed[path].cpu - placed[plain].cpu == Counter()
