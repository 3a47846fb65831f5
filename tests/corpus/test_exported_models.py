"""Models as current exporters write them: valid, stable, and close on short and on hard inputs.

tools/corpus/export_models.py makes them, with packages of the extra "exporters"; where they are not
there, in AMP_EXPORTED or .cache/exported, these tests are skipped.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import exported
import inputs
import onnx
import pytest
import runs
from exported import COSINES, SHORT, Exported

import amp_rewrite as amp
from amp_rewrite import dtypes

pytestmark = pytest.mark.slow

MODELS = {model.name: model for model in exported.exported()}

REORDERED = {
    "ssd_nms": "boxes come in the order of scores, some of which are 1e-4 apart",
}
"""Networks whose outputs on hard inputs are the same numbers in another order."""


@dataclass(frozen=True)
class Case:
    """One model before and after."""

    model: Exported
    precision: Any
    path: Path


@pytest.fixture(
    scope="module",
    params=itertools.product(MODELS or ["none"], dtypes.LOW),
    ids="-".join,
)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    name, precision = request.param
    if name not in MODELS:
        pytest.skip(f"no exported models in {exported.folder()}; tools/corpus/export_models.py")
    path = tmp_path_factory.mktemp(name) / "rewritten.onnx"
    amp.rewrite(MODELS[name].path, precision=precision).save(path)
    return Case(MODELS[name], precision, path)


def test_the_checker_accepts_it(case: Case) -> None:
    onnx.checker.check_model(case.path, full_check=True)


def test_onnx_runtime_loads_it_wherever_it_loads_the_original(case: Case) -> None:
    assert runs.loads(case.model.path)
    try:
        runs.session_of(case.path)
    except runs.NoKernel:
        assert case.precision == "bfloat16"  # the CPU provider lacks most bfloat16 kernels


def test_inputs_and_outputs_are_as_before(case: Case) -> None:
    before, after = onnx.load(case.model.path), onnx.load(case.path)
    assert inputs.real_inputs(after) == inputs.real_inputs(before)
    assert list(after.graph.output) == list(before.graph.output)


def test_rewriting_again_changes_nothing(case: Case, tmp_path: Path) -> None:
    again = amp.rewrite(case.path, precision=case.precision)
    assert not again.changed
    again.save(tmp_path / "again.onnx")
    assert (tmp_path / "again.onnx").read_bytes() == case.path.read_bytes()


def test_outputs_stay_close_on_short_and_on_hard_inputs(case: Case) -> None:
    low = dtypes.low_dtype(case.precision)
    found = exported.cosines(case.model, exported.references(case.model), case.path, low)
    limit = COSINES[case.precision]
    far = {name: cosine for name, cosine in found.items() if not cosine >= limit}
    if case.model.network in REORDERED:
        far = {name: cosine for name, cosine in far.items() if name == SHORT}
    assert far == {}
