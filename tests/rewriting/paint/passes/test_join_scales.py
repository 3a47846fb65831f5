"""Factors in front of low matrix products become low where the target takes them into these."""

from __future__ import annotations

import pytest
from group_models import scaled_model
from rewrite_text import assert_close, rewritten

import amp_rewrite as amp

QUERY = "q = Mul(h, half) s = MatMul(q, t)"


def low_nodes(body: str, **options: object) -> set[str]:
    """Return which nodes of a model become low; those in front of `body` are denied."""
    model = scaled_model(body)
    result = rewritten(model, **{"precision": "float16", "target": "cuda", **options})
    assert_close(result, model)
    low = (n for n in result.report.nodes if n.variables)
    return {n.name for n in low if next(iter(n.variables.values())).dtype != "float32"}


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("body", "joined"),
    [
        (QUERY, {"q"}),
        ("q = Mul(half, h) k = Div(t, half) s = MatMul(q, k)", {"q", "k"}),
        ("i = Mul(h, half) q = Identity(i) s = MatMul(q, t)", {"i", "q"}),
        ("k = Mul(h, half) t2 = Transpose<perm = [0, 2, 1]>(k) s = MatMul(h, t2)", {"k", "t2"}),
    ],
)
def test_a_factor_of_a_low_product_becomes_low(body: str, joined: set[str], precision: str) -> None:
    assert joined <= low_nodes(body, precision=precision)


@pytest.mark.parametrize(
    "body",
    [
        "q = Mul(h, row) s = MatMul(q, t)",
        "q = Div(half, h) s = MatMul(q, t)",
        "q = Mul(h, half) p = Exp(q) n = MatMul(p, t) u = MatMul(q, t) s = Add(n, u)",
        "q = Add(h, half) s = MatMul(q, t)",
    ],
)
def test_what_is_not_a_factor_of_the_product_alone_stays_float32(body: str) -> None:
    assert "q" not in low_nodes(body)


def test_a_factor_that_the_user_denies_stays_float32() -> None:
    assert "q" not in low_nodes(QUERY, deny_nodes=["q"])


def test_a_factor_of_a_float32_product_stays_float32() -> None:
    assert "q" not in low_nodes(QUERY, deny_nodes=["s"])


def test_a_factor_of_numbers_out_of_range_stays_float32() -> None:
    body = "b = Mul(h, huge) q = Mul(b, tiny) s = MatMul(q, t)"
    assert "q" not in low_nodes(body)


@pytest.mark.parametrize("target", ["cpu", "schema"])
def test_a_target_that_does_not_fuse_low_factors_leaves_them_to_the_lists(target: str) -> None:
    assert "q" not in low_nodes(QUERY, target=target)


def test_the_report_says_which_product_a_factor_belongs_to() -> None:
    result = rewritten(scaled_model(QUERY), precision="float16", target="cuda")
    assert amp.explain(result, "q").endswith("a factor of s")
