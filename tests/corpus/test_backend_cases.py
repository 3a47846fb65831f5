"""The models of onnx's own backend tests, rewritten: one or a few of each operator."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
import rewrite_digest
import runs
from backend_cases import all_cases
from invariants import verify_invariants
from releases import before
from rewrite_digest import (
    PRECISIONS,
    RECORD,
    difference,
    digest_of_case,
    digests_of_cases,
    rewrite_case,
)
from thinned import thinned

import amp_rewrite as amp
from amp_rewrite.dtypes import DType, Precision, low_dtype

CHUNKS = 24

RANDOM = frozenset(
    {
        *("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike"),
        *("RandomUniform", "RandomUniformLike"),
    }
)
"""Operators whose outputs are drawn anew at every run; Dropout is drawn in training mode only."""

TIES = 0.35
"""Share of the elements of an integer, boolean or string output that may differ.

Such an output is a decision (an index, a comparison, a rounded value); inputs rounded to the low
type can make two candidates equal, which flips it. A share, because rounding may move all of a
small output; a floor of two elements, because some outputs have two or three.
"""


@dataclass(frozen=True)
class Rewrite:
    """A case, and what became of it: the result, or what was raised."""

    case: Any
    result: amp.RewriteResult | Exception


def rewritten(case: Any, precision: Precision) -> Rewrite:
    try:
        return Rewrite(case, rewrite_case(case.model, precision))
    except Exception as error:  # noqa: BLE001 nothing may come out, whatever it is
        return Rewrite(case, error)


@dataclass(frozen=True)
class Chunk:
    """Some of the cases, rewritten once for all tests of them."""

    precision: Precision
    rewrites: list[Rewrite]

    def results(self) -> Iterator[tuple[Any, amp.RewriteResult]]:
        """Yield the cases that a rewrite took, with what it made of them."""
        for rewrite in self.rewrites:
            if not isinstance(rewrite.result, Exception):
                yield rewrite.case, rewrite.result


CHUNK_NAME = "{0[0]}-{0[1]}".format
EVERY = list(itertools.product(PRECISIONS, range(CHUNKS)))
SHARE = {"float16": 4, "bfloat16": 12}
CONVERTED = thinned([(part,) for part in EVERY], lambda one: one[0][1] % SHARE[one[0][0]] > 0)
"""Of each operator's cases, which stand side by side, the fast suite has a quarter."""
CHECKED = thinned([(part,) for part in EVERY], lambda one: one[0][0] != "float16" or one[0][1] % 12)


@pytest.fixture(scope="module", params=CONVERTED, ids=CHUNK_NAME)
def chunk(request: pytest.FixtureRequest) -> Chunk:
    precision, index = request.param
    return Chunk(precision, [rewritten(case, precision) for case in all_cases()[index::CHUNKS]])


def operators(graph: onnx.GraphProto) -> Iterator[str]:
    for node in graph.node:
        yield node.op_type
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from operators(attribute.g)


def is_random(model: onnx.ModelProto) -> bool:
    used = set(operators(model.graph))
    for function in model.functions:
        used |= {node.op_type for node in function.node}
    return bool(used & RANDOM) or ("Dropout" in used and len(model.graph.input) > 2)


def test_every_model_converts(chunk: Chunk) -> None:
    failed = [r for r in chunk.rewrites if isinstance(r.result, Exception)]
    assert [f"{each.case.name}: {each.result!r}" for each in failed] == []


@pytest.mark.parametrize("chunk", CHECKED, indirect=True, scope="module", ids=CHUNK_NAME)
def test_every_model_holds_every_invariant(chunk: Chunk) -> None:
    problems: list[str] = []
    for case, result in chunk.results():
        found = verify_invariants(amp.load(case.model), result.model)
        problems += [f"{case.name}: {violation}" for violation in found]
        if rewrite_case(result.model, chunk.precision).changed:
            problems.append(f"{case.name}: a second rewrite changes it")
    assert problems == []


def test_bytes_and_reports_are_as_they_were_recorded(chunk: Chunk) -> None:
    if why := rewrite_digest.not_comparable():
        pytest.skip(why)
    known = digests_of_cases(chunk.precision)
    found = [
        difference(case.name, known.get(case.name), digest_of_case(result))
        for case, result in chunk.results()
    ]
    assert [line for line in found if line] == [], RECORD


def feeds_of(model: onnx.ModelProto, arrays: list[Any]) -> dict[str, Any]:
    return {i.name: a for i, a in zip(model.graph.input, arrays, strict=False) if a is not None}


def mismatch(reference: Any, found: Any, low: DType) -> str | None:
    """Return how an output differs from float32 by more than its type explains."""
    if isinstance(reference, list):
        if len(reference) != len(found):
            return f"{len(found)} elements instead of {len(reference)}"
        pairs = zip(reference, found, strict=True)
        return next((m for a, b in pairs if (m := mismatch(a, b, low))), None)
    if reference is None or found is None:
        return None if reference is found else "only one is empty"
    a, b = np.asarray(reference), np.asarray(found)
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return f"{b.dtype}{b.shape} instead of {a.dtype}{a.shape}"
    return discrete_mismatch(a, b) if a.dtype.kind in "iubSUO" else float_mismatch(a, b, low)


def discrete_mismatch(a: Any, b: Any) -> str | None:
    flipped = int(np.count_nonzero(a != b))
    if flipped <= max(2, TIES * a.size):
        return None
    return f"{flipped} of {a.size} elements flipped"


def float_mismatch(a: Any, b: Any, low: DType) -> str | None:
    """Compare element by element, with the tolerance of the type and the output's own scale."""
    a, b = a.astype(np.complex128), b.astype(np.complex128)
    finite = np.isfinite(a) & (np.abs(a) < low.max)
    scale = float(np.abs(a[finite]).max(initial=0.0))
    allowed = low.rtol * np.abs(a) + low.atol * max(scale, 1.0)
    with np.errstate(invalid="ignore"):
        wrong = finite & ~(np.abs(a - b) <= allowed)
    if not wrong.any():
        return None
    worst = float(np.nanmax(np.abs(a - b)[wrong])) if np.isfinite(b[wrong]).any() else np.inf
    return (
        f"{int(wrong.sum())} of {a.size} elements are off by up to {worst:.3g} (scale {scale:.3g})"
    )


def compare_runs(case: Any, result: amp.RewriteResult, low: DType) -> str | None:
    """Run a case before and after; return what is wrong, None if nothing or if it cannot run."""
    if not result.changed:
        return None
    feeds = [feeds_of(case.model, inputs) for inputs, _ in case.data_sets]
    try:
        before = [runs.run(case.model.SerializeToString(), feed) for feed in feeds]
    except (runs.NoKernel, *runs.LOAD_ERRORS, ValueError, TypeError, RuntimeError):
        return None
    try:
        data = amp.to_proto(result.model).SerializeToString()
        after = [runs.run(data, feed) for feed in feeds]
    except runs.NoKernel as error:
        return None if low.name == "bfloat16" else f"no kernel: {error}"
    except runs.LOAD_ERRORS as error:
        return f"does not run: {error}"
    for old, new in zip(before, after, strict=True):
        for name, reference in old.items():
            message = mismatch(reference, new[name], low)
            if message is not None:
                return f"{name}: {message}"
    return None


def test_what_onnx_runtime_ran_still_runs_and_agrees(chunk: Chunk) -> None:
    low = low_dtype(chunk.precision)
    found = {
        case.name: compare_runs(case, result, low)
        for case, result in chunk.results()
        if not is_random(case.model)
    }
    assert {name: message for name, message in found.items() if message is not None} == {}


def test_there_are_as_many_models_as_ever() -> None:
    assert len(all_cases()) >= (1653 if before("onnx", (1, 23)) else 1884)
