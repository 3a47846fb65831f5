"""What ONNX Runtime fuses in real models, it fuses after a rewrite as well; all of them load."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import onnx
import pytest
from cuda_stub import needs_stub, placed
from fused_operators import operators

import amp_rewrite as amp
from amp_rewrite.dtypes import Precision

pytestmark = needs_stub

LARGEST = 60_000_000
"""Bytes of the largest model that is tried."""

PRECISIONS: tuple[Precision, ...] = ("float16", "bfloat16")


def fused(optimized: Counter[str], model: Path) -> Counter[str]:
    """Return the operators that the runtime made: those that the model has none of."""
    own = operators(onnx.load(model, load_external_data=False).graph)
    return Counter({op: n for op, n in optimized.items() if op not in own and "Memcpy" not in op})


@pytest.mark.slow
def test_no_fusion_is_lost(corpus: Any, tmp_path: Path) -> None:
    models = [p for p in sorted(corpus.models.glob("*.onnx")) if p.stat().st_size < LARGEST]
    rewritten: dict[Path, list[Path]] = {}
    for model in models:
        for precision in PRECISIONS:
            path = tmp_path / f"{model.stem}.{precision}.onnx"
            amp.save(amp.rewrite(model, precision=precision).model, path)
            rewritten.setdefault(model, []).append(path)
    found = placed([*models, *(path for paths in rewritten.values() for path in paths)])
    for model, paths in rewritten.items():
        before = fused(found[model], model)
        for path in paths:
            assert not before - fused(found[path], model), path.name
