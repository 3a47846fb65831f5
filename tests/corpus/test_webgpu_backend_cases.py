"""The models of ONNX's backend tests in real float16, each node that WebGPU has a kernel for."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from backend_cases import all_cases

import amp_rewrite as amp
from amp_rewrite import targets
from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.errors import RunError
from amp_rewrite.numerics.emulate.low_sums import kept_low

pytestmark = pytest.mark.webgpu

CASES, CHUNKS = 300, 12

FAR = 0.01
"""The largest distance of a float result from the emulated one, as a share of its size."""

FAILING = re.compile(r"test_resize_.*_cubic.*|test_scatternd_(add|max|min|multiply).*")
"""Cases in which the plugin fails in float16, and not in float32: lists keep these float32."""


def rewritten_cases(index: int) -> list[tuple[Any, amp.RewriteResult]]:
    """Return a chunk of CASES backend cases, from all that become low if every node may."""
    cases = [case for case in all_cases() if not FAILING.fullmatch(case.name)][index::CHUNKS]
    results = ((c, amp.rewrite(c.model, target="webgpu", allow_nodes=["*"])) for c in cases)
    changed = [(case, result) for case, result in results if result.changed]
    count = CASES // CHUNKS
    return [changed[i * len(changed) // count] for i in range(count)]


def emulated_results(case: Any, low: Any) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield feeds, and what float16 makes of them; nothing if ONNX Runtime cannot run it."""
    names = [value.name for value in case.model.graph.input]
    sums = kept_low(targets.find("webgpu"), FLOAT16, low.graph.opset_imports.get("", 0))
    try:
        emulated = amp.Evaluator(low, accumulate_low=sums)
        for inputs, _ in case.data_sets:
            feeds = {n: a for n, a in zip(names, inputs, strict=False) if a is not None}
            yield feeds, emulated.run(feeds)
    except amp.AmpError:
        return


def departure(expected: Any, found: Any) -> float:
    """Return the Euclidean distance of two results over the size, where float16 can hold them."""
    if isinstance(expected, list):
        return max(map(departure, expected, found), default=0.0)
    a, b = np.asarray(expected), np.asarray(found)
    if a.dtype.kind != "f":
        return 0.0
    held = np.isfinite(a) & (np.abs(a) < FLOAT16.max)
    a, b = a[held].astype(np.float64), b[held].astype(np.float64)
    size = max(float(np.linalg.norm(a)), 0.1 * np.sqrt(a.size))
    return float(np.linalg.norm(a - b)) / size if a.size else 0.0


def run(model: Any, feeds: dict[str, Any], webgpu: str) -> dict[str, Any]:
    return amp.Evaluator(model, emulate=False, providers=[webgpu]).run(feeds)


def departures(case: Any, low: amp.RewriteResult, webgpu: str) -> Iterator[str]:
    """Yield what is wrong with a case on WebGPU; nothing if the original does not run there."""
    for feeds, expected in emulated_results(case, low.model):
        try:
            found = run(low.model, feeds, webgpu)
        except RunError as error:
            try:
                run(case.model, feeds, webgpu)
            except RunError:
                return
            yield f"{case.name}: {error}"
            return
        far = max(departure(expected[name], found[name]) for name in expected)
        if not far <= FAR:
            yield f"{case.name}: {far:.2g} of its size away"


@pytest.mark.share(3)
@pytest.mark.parametrize("index", range(CHUNKS))
def test_backend_cases_compute_in_real_float16(index: int, webgpu: str) -> None:
    assert [
        line for case, low in rewritten_cases(index) for line in departures(case, low, webgpu)
    ] == []


def test_what_fails_in_float16_stays_float32() -> None:
    failing = [case.model for case in all_cases() if FAILING.fullmatch(case.name)]
    assert len(failing) > 10
    assert not any(amp.rewrite(model, target="webgpu").changed for model in failing)
