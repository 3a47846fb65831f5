"""No false alarm: of what this package made low itself, `check` fears nothing.

Models of current exporters are those of tools/corpus/export_models.py, where they were made.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import catalog
import exported
import onnx
import pytest
from cast_whole import cast_whole
from repaired_again import repaired_twice

import amp_rewrite as amp
from amp_rewrite.dtypes import Precision

FORMS: tuple[tuple[Precision, str], ...] = (
    ("float16", "cuda"),
    ("float16", "webgpu"),
    ("bfloat16", "cuda"),
)

SMALL = ("magika", "minilm_l3", "silero_v6", "oww_melspec", "ppocrv4_rec")
"""What is tried in the fast suite: the rest of the corpus takes minutes."""


FIRST_OF_BFLOAT16 = 13
"""The opset from which operators take bfloat16."""

EXPORTED = {model.name: model.path for model in exported.exported()}


@pytest.mark.share(7)
@pytest.mark.parametrize(
    ("name", "form"),
    [
        pytest.param(name, form, marks=[] if name in SMALL else [pytest.mark.slow])
        for name, form in itertools.product(catalog.REAL, FORMS)
    ],
    ids=lambda part: part if isinstance(part, str) else "-".join(part),
)
def test_a_rewritten_model_of_the_corpus_is_safe(
    corpus: Any, name: str, form: tuple[Precision, str], tmp_path: Path
) -> None:
    _assert_safe(corpus.path(name), *form, tmp_path / "low.onnx")


@pytest.mark.share(5)
@pytest.mark.parametrize(
    ("name", "form"),
    [
        pytest.param(name, form, marks=[] if name in SMALL else [pytest.mark.slow])
        for name, form in itertools.product(catalog.REAL, FORMS)
    ],
    ids=lambda part: part if isinstance(part, str) else "-".join(part),
)
def test_a_model_of_the_corpus_cast_without_rules_is_repaired_once(
    corpus: Any, name: str, form: tuple[Precision, str]
) -> None:
    precision, target = form
    model = onnx.load(corpus.path(name))
    opset = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    if precision == "bfloat16" and opset < FIRST_OF_BFLOAT16:
        pytest.skip("no operator of its opset takes bfloat16")
    repaired_twice(cast_whole(model, precision), target)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS, ids="-".join)
@pytest.mark.parametrize("name", EXPORTED or ["none"])
def test_a_rewritten_model_of_an_exporter_is_safe(
    name: str, form: tuple[Precision, str], tmp_path: Path
) -> None:
    if name not in EXPORTED:
        pytest.skip(f"no exported models in {exported.folder()}; tools/corpus/export_models.py")
    _assert_safe(EXPORTED[name], *form, tmp_path / "low.onnx")


def _assert_safe(model: Path, precision: Precision, target: str, low: Path) -> None:
    amp.rewrite(model, precision=precision, target=target).save(low)
    found = amp.check(low, precision=precision, target=target, run=False)
    assert [
        (d.node, d.reason, d.detail) for d in found.dangers if found.computes == precision
    ] == []
    assert found.ok
