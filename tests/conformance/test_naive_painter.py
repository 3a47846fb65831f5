"""The painter and a naive one, written from the text of painting.md alone, paint the same."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

import painting_cases
import pytest
import random_models
from backend_cases import all_cases
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from naive_painter import NaivePainter
from rewrite_text import lists_of
from thinned import thinned

from amp_rewrite.dtypes import low_dtype
from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.kernels.kernel_table import KernelTable
from amp_rewrite.oplists import OpLists
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.node_rules import NodeRules
from amp_rewrite.rewriting.paint.pipeline import paint_once
from amp_rewrite.rewriting.paint.ties import variable_ties
from amp_rewrite.rewriting.paint.value_facts import ValueFacts

CASES = {c["name"]: c for c in painting_cases.document()["cases"] if "expect_error" not in c}
CHUNKS = 6
SECOND = (("float16", "cuda"), ("bfloat16", "schema"))
"""Of four precisions and targets, what the slow suite adds to one of each."""


def differences(model: Any, lists: OpLists, precision: str, target: str, **options: Any) -> Any:
    """Return the vertices that only one of the two painters paints."""
    low = low_dtype(precision)
    kernels = KernelTable.load() if target == "cuda" else None
    tie = variable_ties(kernels, low)
    type_graph = build_type_graph(read_flat(model), tie)
    variables = options.pop("variables", ())
    flat = type_graph.flat
    inputs = frozenset(v for v in flat.main.inputs if flat.value_names[v] in variables)
    values = ValueFacts(type_graph, low, variables=inputs)
    context = PaintContext(
        type_graph, lists, low, kernels, variables=inputs, values=values, **options
    )
    found, expected = set(paint_once(context).allowed()), NaivePainter(context).paint()
    name = type_graph.name
    return sorted(map(name, found - expected)), sorted(map(name, expected - found))


@pytest.mark.share(2)
@pytest.mark.parametrize("name", sorted(CASES))
def test_both_painters_agree_on_the_cases(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    for key, value in case.get("lists_override", {}).items():
        monkeypatch.setenv(f"AMP_REWRITE_{key}", value)
    precision = painting_cases.MODES[case["mode"]][0]
    lists = OpLists.from_names(**painting_cases.lists_of(case["mode"]), precision=precision)
    model, _ = painting_cases.build(case)
    rules = NodeRules(preserve=frozenset(case["preserve"]))
    lists = lists.configured(case.get("level", "default"), _environment(case))
    variables = tuple(case.get("variables", ()))
    found = differences(model, lists, precision, "schema", rules=rules, variables=variables)
    assert found == ([], [])


def _environment(case: dict[str, Any]) -> dict[str, str]:
    return {f"AMP_REWRITE_{k}": v for k, v in case.get("lists_override", {}).items()}


@cache
def backend_models() -> list[tuple[str, Any]]:
    return [(case.name, case.model) for case in all_cases()]


@pytest.mark.share(5)
@pytest.mark.parametrize("index", range(CHUNKS))
@pytest.mark.parametrize(
    ("precision", "target"),
    thinned(product(("float16", "bfloat16"), ("schema", "cuda")), lambda pair: pair in SECOND),
)
def test_both_painters_agree_on_the_backend_models(precision: str, target: str, index: int) -> None:
    lists, found = lists_of(precision), {}
    for name, model in backend_models()[index::CHUNKS]:
        difference = differences(model, lists, precision, target)
        if difference != ([], []):
            found[name] = difference
    assert found == {}


def check_random(steps: Any, assigned: dict[str, str], seed: int, follow: bool) -> None:
    model = random_models.build(steps, seed, 3)
    lists = random_models.lists_from(assigned)
    for target in ("schema", "cuda"):
        found = differences(model, lists, "float16", target, infer_after_allow=follow)
        assert found == ([], []), target


ARGUMENTS = {
    "steps": random_models.steps(),
    "assigned": random_models.assignments(),
    "seed": st.integers(0, 9),
    "follow": st.booleans(),
}
QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


@given(**ARGUMENTS)
@settings(max_examples=50, suppress_health_check=QUIET, derandomize=True)
def test_both_painters_agree_on_random_models_and_lists(**arguments: Any) -> None:
    check_random(**arguments)


@pytest.mark.slow
@given(**ARGUMENTS)
@settings(max_examples=5000, suppress_health_check=QUIET, derandomize=True)
def test_both_painters_agree_on_many_random_models_and_lists(**arguments: Any) -> None:
    check_random(**arguments)
