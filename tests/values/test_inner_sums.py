"""Sums inside operators: what is added, and where the sum comes out."""

from __future__ import annotations

import pytest
from interval_models import known_of, model_of

from amp_rewrite.graph.flat import Operator
from amp_rewrite.values.inner_sums import inner_sum, terms_of


def added(call: str) -> tuple[list[str], int] | None:
    """Return the inputs that a node adds up and the number of the output that gives the sum."""
    inputs = ", ".join(f"float[2] {name}" for name in "abcdef")
    flat = known_of(model_of(f"y = {call}", inputs)).flat
    inner = inner_sum(flat.called(0))
    if inner is None:
        return None
    return [flat.value_names[value] for value in terms_of(flat, 0, inner)], inner.output


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("com.microsoft.SkipGroupNorm(a, b, c, d, e, f)", (["a", "d", "e"], 1)),
        ("com.microsoft.SkipGroupNorm(a, b, c, d)", (["a", "d"], 1)),
        ("com.microsoft.SkipLayerNormalization(a, b, c, d, e, f)", (["a", "b", "e"], 3)),
        ("com.microsoft.SkipLayerNormalization(a, b, c)", (["a", "b"], 3)),
        ("com.microsoft.SkipSimplifiedLayerNormalization(a, b, c, d, e)", (["a", "b", "d"], 3)),
        ("com.microsoft.SkipSimplifiedLayerNormalization(a, b, c, , e)", (["a", "b"], 3)),
        ("com.microsoft.LayerNormalization(a, b)", None),
        ("custom.SkipLayerNormalization(a, b, c)", None),
        ("Add(a, b)", None),
    ],
)
def test_residual_streams_go_through_normalizations(
    call: str, expected: tuple[list[str], int] | None
) -> None:
    assert added(call) == expected


@pytest.mark.parametrize("domain", ["", "ai.onnx", "zoo"])
def test_operators_of_other_domains_have_no_sum_inside(domain: str) -> None:
    assert inner_sum(Operator(domain, "SkipLayerNormalization")) is None
