"""Sums of scores and masks stay float32 with what makes the masks, and the Softmax."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pass_marks import context_of, marks_of, model_of, painting_of
from rewrite_text import rewritten

from amp_rewrite.dtypes import BFLOAT16, FLOAT16, DType
from amp_rewrite.rewriting.paint.passes.keep_masks import keep_masks

W = "float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}"


def kept(body: str, constants: str, **options: object) -> set[str]:
    """Return the nodes that a mask keeps in float32."""
    text = f"""g (float[4,4] x, bool[4,4] keep) => (float[4,4] y) <{W}, {constants}> {{
        h = MatMul(x, w) {body} [soft] p = Softmax(s) y = MatMul(p, w) }}"""
    nodes = rewritten(text, **options).report.nodes
    return {n.name for n in nodes if "mask" in {v.reason for v in n.variables.values()}}


FILL = "float zero = {0}, float fill = {-1e4}, float two = {2}"
ADDED = "[mask] m = Where(keep, zero, fill) [add] s = Add(h, m)"


def test_the_sum_and_the_softmax_are_kept() -> None:
    assert {"add", "soft"} <= kept(ADDED, FILL)
    assert {"add", "div", "soft"} <= kept(
        ADDED.replace("s =", "a =") + " [div] s = Div(a, two)", FILL
    )


def test_a_mask_that_trilu_makes_leaves_an_element_in_every_row() -> None:
    constants = "int64[2] size = {4, 4}, int64 one = {1}, int64 zero = {0}"
    body = """c = ConstantOfShape<value = float[1] {-10000}>(size) [cut] m = Trilu(c, DIAGONAL)
              [add] s = Add(h, m)"""
    assert not kept(body.replace("DIAGONAL", "one"), constants)
    assert "add" in kept(body.replace("DIAGONAL", "zero"), constants)


def test_nodes_that_the_user_allows_stay_low() -> None:
    assert "add" not in kept(ADDED, FILL, allow_nodes=["add"])


GRAPH = "g (float[4,4] x, float[4,4] z, bool[4,4] keep, bool[4,4] see) => (float[N] y)"
NUMBERS = {"nil": 0.0, "fill": -1e4, "more": -1e5, "two": 2.0, "one": np.array(1)}
HEAD, TAIL = "h = Exp(x) m = Where(keep, nil, fill)", "y = Softmax(s)"


def details(body: str, low: DType = FLOAT16, **options: Any) -> dict[str, str]:
    """Return what nodes make that masks keep in float32, all being low, and why."""
    ranges = options.pop("ranges", None)
    model = model_of(f"{GRAPH} {{ {body} }}", **{**NUMBERS, **options})
    context = context_of(model, low, ranges)
    found = marks_of(keep_masks, context, painting_of(context))
    return {value: str(mark.detail) for value, mark in found.items()}


WHERE = "in float16, rows that it masks as a whole would come out differently"
MASKS = {
    "added": ("s = Add(h, m)", "msy"),
    "added first": ("s = Add(m, h)", "msy"),
    "taken away": ("n = Neg(m) s = Sub(h, n)", "mnsy"),
    "in front of moves": ("a = Add(h, m) s = Transpose(a)", "masy"),
    "in front of a factor": ("a = Add(h, m) s = Mul(a, two)", "masy"),
    "moved": ("i = Identity(m) s = Add(h, i)", "misy"),
    "added to an input": ("s = Add(z, m)", "msy"),
    "put in place of scores": ("s = Where(keep, h, fill)", ""),
    "multiplied": ("s = Mul(h, m)", ""),
    "in front of a function": ("a = Add(h, m) s = Exp(a)", ""),
    "in front of nothing": ("a = Add(h, m) s = Exp(h)", ""),
    "added to itself": ("a = Where(see, nil, more) n = Add(m, a) s = Add(h, n)", "mansy"),
}


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_counts_where_it_is_added_to_scores(name: str) -> None:
    body, nodes = MASKS[name]
    found = details(f"{HEAD} {body} {TAIL}")
    assert set(found) == {*nodes}
    assert all("masks with numbers of size 1e+04; " + WHERE in detail for detail in found.values())


@pytest.mark.parametrize(
    ("tail", "nodes"),
    [
        ("y = Softmax(s)", "msy"),
        ("y = LogSoftmax(s)", "msy"),
        ("l = ReduceMax(s) d = Sub(s, l) y = Exp(d)", "msy"),
        ("y = Sigmoid(s)", ""),
        ("y = Hardmax(s)", ""),
    ],
)
def test_what_shares_scores_out_is_kept_with_them(tail: str, nodes: str) -> None:
    assert set(details(f"{HEAD} s = Add(h, m) {tail}")) == {*nodes}


@pytest.mark.parametrize(
    ("low", "fill", "is_kept"),
    [
        (FLOAT16, -1e4, True),
        (FLOAT16, -3.4e38, True),
        (BFLOAT16, -(2.0**40), False),
        (BFLOAT16, -3.4e38, False),
        (FLOAT16, -10.0, False),
    ],
)
def test_a_fill_that_swallows_every_score_in_both_types_is_right(
    low: DType, fill: float, is_kept: bool
) -> None:
    found = details(f"{HEAD} s = Add(h, m) {TAIL}", low, fill=fill)
    assert set(found) == ({*"msy"} if is_kept else set())


# Masks that the caller gives.


def test_what_is_said_of_a_mask_that_the_caller_gives() -> None:
    body = f"h = Exp(x) [sum] s = Add(h, z) {TAIL}"
    found = details(body)
    assert found["s"].startswith("sum adds an input that may be a mask; in float16, rows that it")
    assert not details(body, ranges={"z": (-10.0, 10.0)})
    assert not details(f"s = Add(x, z) {TAIL}", ranges={"x": (-1.0, 1.0)})


def test_a_sum_of_masks_of_which_the_caller_gives_one() -> None:
    body = f"{HEAD} n = Add(m, z) [sum] s = Add(h, n) {TAIL}"
    found = details(body)
    assert set(found) == {*"mnsy"}
    assert found["s"].startswith("sum adds a sum of masks, of which the caller gives one; in fl")
    assert "sum of masks" in details(body, BFLOAT16, fill=-3.4e38)["s"]
    assert not details(f"{HEAD} s = Add(h, m) {TAIL}", BFLOAT16, fill=-3.4e38)
