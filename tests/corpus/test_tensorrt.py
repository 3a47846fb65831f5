"""TensorRT takes what it took before: rewritten models are parsed and built as their originals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import tensorrt_judge
from backend_cases import all_cases
from catalog import REAL
from thinned import every

import amp_rewrite as amp
from amp_rewrite.dtypes import Precision
from amp_rewrite.oplists import ListName, OpLists
from amp_rewrite.oplists.files import PAINTED

pytestmark = pytest.mark.tensorrt

PRECISIONS: tuple[Precision, ...] = ("float16", "bfloat16")
OPSET = 22
"""The opset from which on bfloat16 is in the schema of Conv."""

NOT_RAISED = {"ort_mul_1"}
"""Models that onnx's version converter cannot move."""

LARGEST = 200_000_000
"""The largest model that is held in memory, in bytes."""


@cache
def cases() -> list[Any]:
    return [case for case in all_cases() if case.model is not None]


def all_allowed(precision: Precision) -> OpLists:
    """Return lists that paint whatever has a kernel, so that every row of the table is met."""
    lists = amp.load_lists(precision=precision, target="tensorrt")
    painted = PAINTED | {ListName.DENY}
    return replace(
        lists,
        entries=tuple(
            replace(e, list=ListName.ALLOW) if e.list in painted else e for e in lists.entries
        ),
    )


@pytest.fixture(scope="module")
def original(tensorrt: tensorrt_judge.Judge) -> Callable[[int], bool]:
    """Return what tells whether the original of a case parses, which is asked once of each."""

    @cache
    def parses(number: int) -> bool:
        return bool(tensorrt.judge(cases()[number].model.SerializeToString()).parsed)

    return parses


@pytest.mark.parametrize("step", every([5, 1], 2), ids=["some", "all"])
@pytest.mark.parametrize("allowed", [False, True])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_backend_cases_parse_wherever_their_originals_do(
    original: Callable[[int], bool],
    tensorrt: tensorrt_judge.Judge,
    precision: Precision,
    allowed: bool,
    step: int,
) -> None:
    lists = all_allowed(precision) if allowed else None
    lost: list[str] = []
    converted = 0
    for number, case in enumerate(cases()):
        if number % step or not original(number):
            continue
        result = amp.rewrite(case.model, target="tensorrt", precision=precision, lists=lists)
        converted += result.report.summary.nodes_converted > 0
        verdict = tensorrt.judge(amp.to_proto(result.model).SerializeToString())
        if not verdict.parsed:
            lost.append(f"{case.name}: {verdict.error}")
    assert not lost
    assert converted > (600 if allowed else 150) // step


@pytest.mark.slow
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", REAL)
def test_models_of_the_corpus_are_built_wherever_their_originals_are(
    tensorrt: tensorrt_judge.Judge, corpus: Any, name: str, precision: Precision
) -> None:
    path = corpus.path(name)
    if path.stat().st_size > LARGEST:
        pytest.skip(f"{path.stat().st_size} bytes")
    shapes = {key: shape for key, (shape, _) in corpus.spec(name).items()}
    raised = precision == "bfloat16" and name not in NOT_RAISED
    source = amp.raise_opset(path, OPSET).model if raised else amp.load(path)
    before = amp.to_proto(source).SerializeToString()
    original = tensorrt.judge(before, build=True, path=str(path), shapes=shapes)
    if not original.parsed:
        pytest.skip(f"the float32 original does not parse: {original.error}")
    result = amp.rewrite(source, target="tensorrt", precision=precision)
    model = amp.to_proto(result.model).SerializeToString()
    verdict = tensorrt.judge(model, build=bool(original.built), shapes=shapes)
    assert verdict.parsed, verdict.error
    if original.built:
        assert verdict.built, verdict.error
