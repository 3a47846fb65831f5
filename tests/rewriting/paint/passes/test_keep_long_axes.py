"""What has too many results along an axis for indices in the low type stays float32."""

from __future__ import annotations

import numpy as np
import pytest
from pass_marks import context_of, marks_of, model_of
from rewrite_text import rewritten

from amp_rewrite.dtypes import BFLOAT16, FLOAT16, DType
from amp_rewrite.rewriting.paint.passes.keep_long_axes import keep_long_axes

INDEXES = frozenset({("", "ConvTranspose")})


def kept(
    shape: str, kernel: tuple[int, ...], stride: int, low: DType = FLOAT16, opset: int = 17
) -> set[str]:
    """Return what nodes make that is kept of a ConvTranspose of an input of a shape."""
    strides = str([stride] * len(kernel))
    model = model_of(
        f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[{shape}] x) => (float[N] y) {{ '
        f"h = ConvTranspose<strides = {strides}>(x, w) y = Relu(h) }}",
        w=np.ones((2, 2, *kernel)),
    )
    return {*marks_of(keep_long_axes, context_of(model, low, indexes_low=INDEXES))}


@pytest.mark.parametrize("opset", [11, 17, 22])
@pytest.mark.parametrize(
    ("shape", "kernel", "is_kept"),
    [
        ("1,2,1025", (2,), True),
        ("1,2,1024", (2,), False),
        ("1,2,L", (2,), True),
        ("B,2,100", (2,), False),
        ("1,2,8,1025", (2, 2), True),
        ("1,2,1025,8", (2, 2), True),
        ("1,2,64,64", (2, 2), False),
        ("1,2,H,W", (2, 2), True),
        ("1,2,4,4,1025", (2, 2, 2), True),
        ("1,2,4,4,4", (2, 2, 2), False),
    ],
)
def test_axes_of_more_than_2048_results_or_an_unknown_number_are_kept(
    shape: str, kernel: tuple[int, ...], is_kept: bool, opset: int
) -> None:
    assert kept(shape, kernel, 2, opset=opset) == ({"h"} if is_kept else set())


def test_bfloat16_counts_to_256() -> None:
    assert kept("1,2,129", (2,), 2, BFLOAT16) == {"h"}
    assert not kept("1,2,128", (2,), 2, BFLOAT16)


TEXT = """g (float[1,2,1100] x) => (float[1,2,2200] y) <float[2,2,2] w = {1,0,0,1,1,0,0,1}> {
    [up] y = ConvTranspose<strides = [2]>(x, w) }"""


@pytest.mark.parametrize(("target", "reason"), [("webgpu", "long-axis"), ("any", "long-axis")])
def test_targets_whose_table_says_so_keep_them(target: str, reason: str) -> None:
    (node,) = rewritten(TEXT, target=target).report.nodes
    assert node.variables["T"].reason == reason


def test_cuda_does_not() -> None:
    (node,) = rewritten(TEXT).report.nodes
    assert node.variables["T"].reason == "allow-list"


@pytest.mark.parametrize("kind", ["branch", "turn"])
def test_branches_and_loops_are_the_same(kind: str) -> None:
    inner = "h = ConvTranspose<strides = [2]>(x, w)"
    body = f"""y = If(c) <then_branch = t () => (float[1,2,2200] h) {{ {inner} }},
        else_branch = e () => (float[1,2,2200] z) {{ z = Concat<axis = 2>(x, x) }}>"""
    if kind == "turn":
        body = f"""y = Scan<num_scan_inputs = 1, body = b (float[1,2,1100] x0) =>
            (float[1,2,2200] h) {{ {inner.replace("(x,", "(x0,")} }}>(x)"""
    shape = "1,2,1100" if kind == "branch" else "3,1,2,1100"
    model = model_of(
        f"g (float[{shape}] x, bool c) => (float[N] y) {{ {body} }}", w=np.ones((2, 2, 2))
    )
    context = context_of(model, indexes_low=INDEXES)
    assert {*marks_of(keep_long_axes, context)} == {"h"}
