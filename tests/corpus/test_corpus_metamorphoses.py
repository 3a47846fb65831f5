"""Real models that are written another way are painted the same way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import exported
import numpy as np
import onnx
import pytest
from metamorphoses import CHANGES, Change, in_branches, marked, rescaled, types_of

import amp_rewrite as amp
from amp_rewrite import dtypes

LARGEST = 5_000_000
"""Bytes of the largest model that is tried."""

SMALL = ("light_shufflenet", "light_squeezenet", "ort_mul_1")
FIRST_IF_OF_BFLOAT16 = 16
"""The opset since which branches may hand on bfloat16, and so may what is put there."""

EXPORTED = {model.name: model.path for model in exported.exported()}
WITH_SCALES: dict[str, Change] = {**CHANGES, "rescaled": rescaled}


def check(path: Path, change: Change, precision: Any, target: Any) -> None:
    model = marked(onnx.load(path))
    opset = next(entry.version for entry in model.opset_import if entry.domain == "")
    if change is in_branches and precision == "bfloat16" and opset < FIRST_IF_OF_BFLOAT16:
        return
    # Where the last cast stands is a matter of cost, and a branch makes two of one.
    options: dict[str, Any] = {"precision": precision, "target": target, "move_casts": False}
    before = types_of(amp.rewrite(model, inline_functions=True, **options))
    assert before
    for seed in range(2):
        changed = change(model, np.random.default_rng(seed))
        after = types_of(amp.rewrite(changed, inline_functions=True, **options))
        found = {node: (types, after.get(node)) for node, types in before.items()}
        assert {n: pair for n, pair in found.items() if pair[0] != pair[1]} == {}


@pytest.mark.share(11)
@pytest.mark.parametrize("change", WITH_SCALES)
@pytest.mark.parametrize("name", SMALL)
def test_a_small_model_written_another_way_is_painted_the_same(
    name: str, change: str, corpus: Any
) -> None:
    check(corpus.path(name), WITH_SCALES[change], "float16", "schema")


@pytest.mark.slow
@pytest.mark.parametrize("precision", dtypes.LOW)
@pytest.mark.parametrize("change", WITH_SCALES)
def test_the_corpus_written_another_way_is_painted_the_same(
    change: str, precision: Any, corpus: Any
) -> None:
    for path in sorted(corpus.models.glob("*.onnx")):
        if path.stat().st_size < LARGEST:
            check(path, WITH_SCALES[change], precision, "schema")


@pytest.mark.slow
@pytest.mark.skipif(not EXPORTED, reason="no exported models; tools/corpus/export_models.py")
@pytest.mark.parametrize("precision", dtypes.LOW)
@pytest.mark.parametrize("change", WITH_SCALES)
@pytest.mark.parametrize("name", EXPORTED)
def test_an_exported_model_written_another_way_is_painted_the_same(
    name: str, change: str, precision: Any
) -> None:
    check(EXPORTED[name], WITH_SCALES[change], precision, "schema")
