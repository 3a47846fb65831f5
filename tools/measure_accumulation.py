#!/usr/bin/env python3
"""Write lists/kernels/accumulation_<provider>_<version>.json: what a provider's kernels add up in.

Usage: measure_accumulation.py [--provider NAME] [--output DIR]

Every operator of CASES runs on the provider in float16, on random terms and on edges: long sums of
ones, sums that cancel, overflow on the way, subnormals, infinities, NaN. The result is compared,
bit for bit, with each way of adding up that is known here (ORDERS), and with sums in float32. Run
it where the provider has a device (tools/software_vulkan.py).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
from measure_steps import STEPS, arm_processor, measure_steps, opened
from runtime_kernels import runtime_in_words

from amp_rewrite.dtypes import FLOAT16, FLOAT32
from amp_rewrite.errors import AmpError
from amp_rewrite.kernels.accumulation import FORMAT_VERSION, SumOrder
from amp_rewrite.runtimes.session import Session
from amp_rewrite.targets import ARM64, WEBGPU

DEFAULT_OUTPUT = Path(__file__).resolve().parent.parent / "lists" / "kernels"

Array = np.ndarray[Any, np.dtype[Any]]

ORDERS = (
    *(SumOrder(FLOAT16, chunk) for chunk in (1, 2, 4, 8, 16)),
    *(SumOrder(FLOAT16, lanes=lanes) for lanes in (8, 16, 32, 64, 128, 256)),
    SumOrder(FLOAT16, fused=True),
)
"""The ways of adding up that are told apart, besides one in float32."""


@dataclass(frozen=True)
class Case:
    """A way to have an operator add up.

    Attributes:
        op: The operator.
        text: A graph of x and, for products, of w, whose result y has a sum per row of x.
        length: The number of terms.
        x: (rows, terms) -> the feed.
        w: (terms) -> the feed; None for an operator that multiplies nothing.
        divides: Whether the sum is divided by the number of terms.
        when: The attributes that the order depends on.
    """

    op: str
    text: str
    length: int
    x: Callable[[Array], Array] = lambda terms: terms
    w: Callable[[Array], Array] | None = None
    divides: bool = False
    when: Mapping[str, int] = field(default_factory=dict[str, int])


def _windows(terms: Array) -> Array:
    """Return rows of 3 x 3 windows, the terms of a channel apart: (rows, channels, 3, 3)."""
    return terms.reshape(len(terms), 3, 3, -1).transpose(0, 3, 1, 2)


CASES = (
    Case("MatMul", "y = MatMul(x, w)", 1024, w=lambda w: w[:, None]),
    Case("Gemm", "y = Gemm<transB: int = 1>(x, w)", 1024, w=lambda w: w[None], when={"transB": 1}),
    Case("Gemm", "y = Gemm(x, w)", 1024, w=lambda w: w[:, None]),
    Case(
        "Einsum", 'y = Einsum<equation: string = "ij,jk->ik">(x, w)', 1024, w=lambda w: w[:, None]
    ),
    Case("Conv", "y = Conv(x, w)", 1008, _windows, lambda w: _windows(w[None])),
    Case(
        "ConvTranspose",
        "y = ConvTranspose(x, w)",
        1024,
        lambda terms: terms[:, :, None, None],
        lambda w: w[:, None, None, None],
    ),
    Case("ReduceSum", "a = Constant<value_ints = [1]>() y = ReduceSum(x, a)", 1024),
    Case("ReduceMean", "y = ReduceMean<axes = [1]>(x)", 1024, divides=True),
    Case(
        "AveragePool",
        "y = AveragePool<kernel_shape = [7, 7]>(x)",
        49,
        lambda terms: terms.reshape(len(terms), 1, 7, 7),
        divides=True,
    ),
    Case(
        "GlobalAveragePool",
        "y = GlobalAveragePool(x)",
        49,
        lambda terms: terms.reshape(len(terms), 1, 7, 7),
        divides=True,
    ),
)


def edges(length: int) -> Array:
    """Return rows of terms that tell ways of adding up apart, or that are hard."""
    half = length // 2
    rows = np.ones((7, length), np.float32)
    rows[1] = 300.0  # a sum of 512 overflows
    rows[2, :half], rows[2, half:] = 40000.0, -40000.0
    rows[3, 0], rows[3, 1:] = 2048.0, 1.0
    rows[4] = 1.5e-7  # subnormal
    rows[5, half] = np.inf
    rows[6, half] = np.nan
    return rows.astype(np.float16)


def add_up(x: Array, w: Array, order: SumOrder) -> Array:
    """Add products of float16 numbers along the last axis as a kernel of this order does."""
    if order.fused:
        return _add_fused(x, w)
    terms = x * w
    if order.lanes > 1:
        return _add_lanes(terms, order.lanes)
    chunk = order.chunk if terms.shape[-1] % order.chunk == 0 else 1
    parts = terms.reshape(*terms.shape[:-1], -1, chunk)
    return _add_in_order(_add_in_order(parts))


def _add_in_order(terms: Array) -> Array:
    total = np.zeros(terms.shape[:-1], np.float16)
    for i in range(terms.shape[-1]):
        total = total + terms[..., i]
    return total


def _add_fused(x: Array, w: Array) -> Array:
    total = np.zeros(x.shape[:-1], np.float16)
    for i in range(x.shape[-1]):  # float64 holds products and all but the rarest sums exactly
        total = (total + x[..., i].astype(np.float64) * np.float64(w[i])).astype(np.float16)
    return total


def _add_lanes(terms: Array, lanes: int) -> Array:
    width = -(-terms.shape[-1] // lanes) * lanes
    padded = np.zeros((*terms.shape[:-1], width), np.float16)
    padded[..., : terms.shape[-1]] = terms
    total = _add_in_order(padded.reshape(*terms.shape[:-1], -1, lanes).swapaxes(-1, -2))
    while total.shape[-1] > 1:
        half = total.shape[-1] // 2
        total = total[..., :half] + total[..., half:]
    return total[..., 0]


def measure(case: Case, provider: str) -> dict[str, Any]:
    """Run a case on a provider; return its row of the table."""
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [rng.standard_normal((57, case.length)).astype(np.float16), edges(case.length)]
    )
    w = np.ones(case.length, np.float16)
    found = [(x, w)]
    if case.w is not None:
        found.append((x, rng.standard_normal(case.length).astype(np.float16)))
    session = _session(case, provider)
    results = [(_run(session, case, x, w), x, w) for x, w in found]
    equal = {
        order: min(_equal(_finish(add_up(x, w, order), case), y) for y, x, w in results)
        for order in ORDERS
    }
    order = max(ORDERS, key=lambda order: equal[order])
    if equal[order] < 1 and all(_is_float32(case, y, x, w) for y, x, w in results):
        return {"type": FLOAT32.name}
    parts = {name: n for name in ("chunk", "lanes") if (n := getattr(order, name)) > 1}
    exact = {} if equal[order] == 1 else {"equal": round(equal[order], 3)}
    fused = {"fused": True} if order.fused else {}
    when = {"when": dict(case.when)} if case.when else {}
    return {"type": FLOAT16.name, **parts, **fused, **when, **exact}


def _session(case: Case, provider: str) -> Session:
    operands = "float16[] x" if case.w is None else "float16[] x, float16[] w"
    graph = f"g ({operands}) => (float16[] y) {{ {case.text} }}"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {graph}')
    return opened(model, provider)


def _run(session: Session, case: Case, x: Array, w: Array) -> Array:
    feeds = {"x": np.ascontiguousarray(case.x(x))}
    if case.w is not None:
        feeds["w"] = np.ascontiguousarray(case.w(w))
    return session.run(feeds)[0].reshape(-1)


def _finish(total: Array, case: Case) -> Array:
    if not case.divides:
        return total
    return (total.astype(np.float32) / case.length).astype(np.float16)


def _equal(expected: Array, found: Array) -> float:
    return float(np.mean((expected == found) | (np.isnan(expected) & np.isnan(found))))


def _is_float32(case: Case, found: Array, x: Array, w: Array) -> bool:
    """Tell whether results are those of sums in float32, rounded once."""
    total = (x.astype(np.float64) * w).sum(-1) / (case.length if case.divides else 1)
    return _equal(total.astype(np.float16), found) > 0.9


def table(provider: str) -> dict[str, Any]:
    """Return the table of a provider."""
    sums: dict[str, list[dict[str, Any]]] = {}
    for case in CASES:
        sums.setdefault(case.op, []).append(measure(case, provider))
        print(case.op, sums[case.op][-1], flush=True)
    return {
        "version": FORMAT_VERSION,
        "runtime": arm_processor().runtime_there()
        if provider == ARM64
        else runtime_in_words(provider),
        "provider": provider,
        "source": "tools/measure_accumulation.py",
        "sums": {"": dict(sorted(sums.items()))},
        "steps": {"": {op: type_ for op in STEPS if (type_ := measure_steps(op, provider))}},
    }


def to_text(made: dict[str, Any]) -> str:
    """Return a table as JSON with one operator a line."""
    head = json.dumps({name: part for name, part in made.items() if name not in ("sums", "steps")})
    lines = ",\n   ".join(
        f"{json.dumps(op)}: {json.dumps(r)}" for op, r in made["sums"][""].items()
    )
    steps = json.dumps(made["steps"])
    return f'{head[:-1]},\n "sums": {{\n  "": {{\n   {lines}}}}},\n "steps": {steps}}}\n'


def main(arguments: list[str] | None = None) -> int:
    """Measure and write the table; return the exit status."""
    parser = argparse.ArgumentParser(description="Measure what a provider's kernels add up in.")
    parser.add_argument("--provider", default=WEBGPU)
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT)
    options = parser.parse_args(arguments)
    try:
        with np.errstate(all="ignore"):
            made = table(options.provider)
    except (AmpError, OSError) as error:
        print(f"measure_accumulation: {error}", file=sys.stderr)
        return 1
    version = made["runtime"].split()[-1]
    path = options.output / f"accumulation_{options.provider}_{version}.json"
    if path.exists():  # what was reported rather than measured
        old = json.loads(path.read_text("utf-8"))
        made |= {part: old[part] for part in ("indices", "variances") if part in old}
    path.write_text(to_text(made), "utf-8")
    print(f"-> {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
