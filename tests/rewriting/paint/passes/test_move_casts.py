"""Casts move across clear operators where that lowers their number or what they read."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import pytest
from pass_marks import context_of, marks_of, model_of, painting_of
from rewrite_text import assert_rewrites

from amp_rewrite.rewriting.paint.node_rules import NodeRules
from amp_rewrite.rewriting.paint.painting import Color
from amp_rewrite.rewriting.paint.passes.move_casts import move_casts
from amp_rewrite.rewriting.reasons import Reason


def test_two_casts_behind_a_split_become_one_in_front() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            h = MatMul(x, x)
            a, b = Split<axis = 1, num_outputs = 2>(h)
            c = Exp(a)
            d = Exp(b)
            y = Concat<axis = 1>(c, d)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            h_fp32 = Cast<to = 1>(h)
            a, b = Split<axis = 1, num_outputs = 2>(h_fp32)
            c = Exp(a)
            d = Exp(b)
            y = Concat<axis = 1>(c, d)
        }""",
    )


def test_no_float32_consumer_reads_a_value_rounded_for_a_cast() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y, float[4,4] z) {
            e = Exp(x)
            r = Relu(e)
            y = MatMul(r, r)
            t = Transpose<perm = [1, 0]>(r)
            z = Exp(t)
        }""",
        """g (float[4,4] x) => (float[4,4] y, float[4,4] z) {
            e = Exp(x)
            r = Relu(e)
            r_fp16 = Cast<to = 10>(r)
            y_fp16 = MatMul(r_fp16, r_fp16)
            y = Cast<to = 1>(y_fp16)
            t = Transpose<perm = [1, 0]>(r)
            z = Exp(t)
        }""",
    )


NUMBERS = {
    "few": np.array([1, 2, 3, 4]),
    "long": np.array([100, 4]),
    "axis": np.array([0]),
    "count": np.array([1]),
    "held": np.ones((4, 4)),
    "yes": np.array(True),
}
LOW, HIGH = True, False


def model(body: str, infos: str = "", ends: str = "") -> onnx.ModelProto:
    """Return a model; what is read besides is said by `ends`, shapes by `infos`."""
    text = f"g (float[4,4] x, float[100,4] u{ends}) => (float[N] y) <{infos}> {{ {body} }}"
    return model_of(text, **NUMBERS)


def moved(held: onnx.ModelProto, low: str, **fields: Any) -> dict[str, bool]:
    """Return what nodes make that change color, if some are low; the new one."""
    context = context_of(held, **fields)
    if low_ends := fields.get("low_ends"):
        names = context.type_graph.flat.value_names
        ends = frozenset(names.index(name) for name in low_ends)
        context = context_of(held, **{**fields, "low_ends": ends})
    marks = marks_of(move_casts, context, painting_of(context, low.split()))
    assert {mark.reason for mark in marks.values()} <= {Reason.CAST_MOVED}
    return {value: mark.color is Color.ALLOW for value, mark in marks.items()}


HEADS = "h = MatMul(x, x) k = MatMul(x, x)"
FORKS = {
    "two behind a Split": (
        f"{HEADS} a, b = Split<num_outputs = 2>(h) c = Exp(a) y = Exp(b)",
        "h k a",
        {"a": HIGH},
    ),
    "one behind a Split": (
        f"{HEADS} a, b = Split<num_outputs = 2>(h) c = MatMul(a, x) y = Exp(b)",
        "h k a c",
        {},
    ),
    "two in front of a Concat": (
        "a = Exp(x) b = Exp(x) c = Concat<axis = 0>(a, b) y = MatMul(c, x)",
        "c y",
        {"c": HIGH},
    ),
    "one in front of a Concat": (
        f"{HEADS} b = Exp(x) c = Concat<axis = 0>(h, b) y = MatMul(c, x)",
        "h k c y",
        {},
    ),
    "between low ones": (
        f"{HEADS} c = Concat<axis = 0>(h, k) y = MatMul(c, x)",
        "h k y",
        {"c": LOW},
    ),
    "read in float32, too": (
        f"{HEADS} c = Concat<axis = 0>(h, k) y = MatMul(c, x) e = Exp(c)",
        "h k y",
        {},
    ),
    "an output of the model": (f"{HEADS} y = Concat<axis = 0>(h, k)", "h k", {}),
    "one way in and out": (f"{HEADS} c = Transpose(h) y = MatMul(c, x)", "h k y", {}),
    "what jumps": (f"{HEADS} c, i = TopK(h, count) y = MatMul(c, x)", "h k y", {}),
    "what jumps, behind a float32 one": (
        "a = Exp(x) c, i = TopK(a, count) e = Exp(c) y = MatMul(c, x)",
        "y",
        {},
    ),
    "what is on no such list": (f"{HEADS} c = Add(h, k) y = MatMul(c, x)", "h k y", {}),
    "a constant beside": (
        "a = Exp(x) c = Concat<axis = 0>(a, held) y = MatMul(c, x)",
        "c y",
        {},
    ),
    "an input beside": (
        f"{HEADS} c = Concat<axis = 0>(h, x) y = MatMul(c, x)",
        "h k y",
        {"c": LOW},
    ),
    "a long way": (
        f"{HEADS} c = Concat<axis = 0>(h, k) i = Identity(c) j = Neg(i) y = MatMul(j, x)",
        "h k y",
        {"c": LOW, "i": LOW, "j": LOW},
    ),
    "a way that forks": (
        f"{HEADS} c = Concat<axis = 0>(h, k) i = Neg(c) j = Abs(c) l = MatMul(i, x) y = Exp(j)",
        "h k l",
        {},
    ),
    "a Cast beside": (
        f"{HEADS} c = Concat<axis = 0>(h, k) i = Cast<to = 7>(c) y = MatMul(c, x)",
        "h k y",
        {"c": LOW},
    ),
    "all the same": ("a = Exp(x) c = Neg(a) y = Exp(c)", "", {}),
}


@pytest.mark.parametrize("name", FORKS)
def test_what_saves_casts_changes_its_color(name: str) -> None:
    body, low, expected = FORKS[name]
    assert moved(model(body), low) == expected


def test_what_the_user_preserves_or_the_context_forbids_is_left_alone() -> None:
    held = model(f"{HEADS} [joined] c = Concat<axis = 0>(h, k) y = MatMul(c, x)")
    assert moved(held, "h k y") == {"c": LOW}
    assert moved(held, "h k y", rules=NodeRules(preserve=frozenset({"joined"}))) == {}
    assert moved(held, "h k y", moves_casts=False) == {}
    assert moved(held, "h k y", only_low=True) == {}


# What casts read, where their number is the same.


@pytest.mark.parametrize(("steps", "moves"), [(15, True), (16, False)])
def test_runs_have_an_end(steps: int, moves: bool) -> None:
    names = ["u", *(f"t{k}" for k in range(steps))]
    chain = " ".join(f"{b} = Abs({a})" for a, b in pairwise(names))
    infos = ", ".join(f"float[100,4] {name}" for name in names[1:])
    held = model(f"{chain} r = Gather({names[-1]}, few) y = MatMul(r, x)", f"{infos}, float[4,4] r")
    found = moved(held, " ".join([*names[1:], "r", "y"]))
    assert found == (dict.fromkeys([*names[1:], "r"], HIGH) if moves else {})
