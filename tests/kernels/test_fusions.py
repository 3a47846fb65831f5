"""The table of what ONNX Runtime fuses."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from group_models import FORMS, model_around

import amp_rewrite as amp
from amp_rewrite import targets
from amp_rewrite.dtypes import BFLOAT16, FLOAT16, FLOAT32, DType
from amp_rewrite.kernels import fusions
from amp_rewrite.kernels.kernel_table import KernelTable
from amp_rewrite.values.patterns.library import PATTERNS

CUDA = KernelTable.load(targets.CUDA)
TABLE = fusions.load(targets.ONNX_RUNTIME)


def test_every_row_has_a_pattern_and_every_target_a_table_that_is_there() -> None:
    assert set(TABLE) <= {pattern.name for pattern in PATTERNS}
    for target in targets.TARGETS:
        assert fusions.load(target.fusions) == (TABLE if target.fusions else {})


@pytest.mark.parametrize(
    ("pattern", "opset", "given", "result", "runs"),
    [
        ("LayerNormalization", 13, FLOAT16, FLOAT32, True),
        ("LayerNormalization", 13, BFLOAT16, FLOAT32, False),
        ("LayerNormalization", 13, BFLOAT16, BFLOAT16, True),
        ("LayerNormalization", 17, FLOAT16, FLOAT32, False),
        ("LayerNormalization", 17, FLOAT16, FLOAT16, True),
        ("RMSNormalization", 17, FLOAT16, FLOAT32, True),
        ("RMSNormalization", 23, BFLOAT16, FLOAT32, False),
        ("Gelu", 17, FLOAT16, FLOAT16, True),
        ("BiasGelu", 17, BFLOAT16, BFLOAT16, True),
    ],
)
def test_the_kernel_table_decides(
    pattern: str, opset: int, given: DType, result: DType, runs: bool
) -> None:
    assert TABLE[pattern].runs(CUDA, opset, given, result) is runs


GELU = "FastGelu by Pow"
"""Fused, its Pow becomes low although it is denied."""


def low_nodes(target: str) -> set[str]:
    nodes = amp.rewrite(model_around(FORMS["fast-gelu-power"]), target=target).report.nodes
    return {n.name for n in nodes if any(v.dtype == "float16" for v in n.variables.values())}


@pytest.fixture
def fusing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Add two targets that are CUDA with tables of their own: one fuses less, one in bfloat16."""
    data = tmp_path / "lists"
    shutil.copytree(str(targets.DATA), data)
    table = json.loads((data / "fusions" / f"{targets.ONNX_RUNTIME}.json").read_text("utf-8"))
    rows = [row for row in table["fusions"] if row["pattern"] == GELU]
    for name, low in (("gelus_1.0", ["float16"]), ("other_1.0", ["bfloat16"])):
        changed = {**table, "fusions": [{**row, "low": low} for row in rows]}
        (data / "fusions" / f"{name}.json").write_text(json.dumps(changed), "utf-8")
    cuda = targets.find("cuda")
    rows = [replace(cuda, name=n, fusions=f"{n}_1.0") for n in ("gelus", "other")]
    monkeypatch.setattr(targets, "DATA", data)
    monkeypatch.setattr(targets, "TARGETS", (*targets.TARGETS, *rows))


@pytest.mark.usefixtures("fusing")
@pytest.mark.parametrize(
    ("target", "fused"),
    [
        ("cuda", True),
        ("gelus", True),
        ("cuda,gelus", True),
        ("gelus,cuda", True),
        ("cuda,other", False),
        ("other,cuda", False),
        ("cuda,tensorrt", False),  # which computes the power as it stands
        ("tensorrt,cuda", False),
    ],
)
def test_of_several_targets_all_have_to_fuse_what_becomes_low(target: str, fused: bool) -> None:
    assert ("a" in low_nodes(target)) is fused
    assert {"h", "y"} <= low_nodes(target)


@pytest.mark.usefixtures("fusing")
def test_several_targets_fuse_what_any_of_them_does() -> None:
    alone, both = (fusions.of_target(targets.find(name)) for name in ("gelus", "gelus,cuda"))
    assert set(alone) == {GELU}
    assert set(both) == set(TABLE)
    assert [fusion is None for fusion, _ in both["SiLU"].parts] == [True, False]
    assert not both["SiLU"].runs(FLOAT16, 17, FLOAT16, FLOAT16)
    assert both[GELU].runs(FLOAT16, 17, FLOAT16, FLOAT16)
