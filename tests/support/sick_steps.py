"""Steps with a known fault, for tests of what is said of it."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import parser

import amp_rewrite as amp

X = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
T = np.zeros((8, 2), np.float32)
BATCH = {"x": 0.1 * X, "t": T}
LARGE = {"x": 100 * X, "t": T}
"""A batch whose exponentials overflow."""

EXPONENTIAL = """
    [small] h = Mul (e, tiny)
    [diff] d = Sub (h, t)
    [square] s = Mul (d, d)"""


def step(nodes: str = EXPONENTIAL, optimizer: Any = None, **how: Any) -> amp.optimizers.TrainOp:
    """Return a step of a model whose nodes make s of a, e = exp(a), t and the number tiny."""
    text = f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[N, 4] x, float[N, 2] t) => (float loss)
        <float[4, 2] w = {{1, 2, 3, 4, 5, 6, 7, 8}}, float tiny = {{0.00001}}> {{
            [first] a = MatMul (x, w)
            [act] e = Exp (a)
            {nodes}
            [mean] loss = ReduceMean <keepdims = 0> (s)
        }}"""
    model = amp.load(parser.parse_model(text))
    optimizer = amp.optimizers.SGD(1e-6) if optimizer is None else optimizer
    return optimizer.minimize(amp.value(model, "loss"), var_list="w", **how)


def scaled(loss_scale: Any = "dynamic") -> Any:
    """Return an optimizer with a loss scale."""
    return amp.LossScaleOptimizer(amp.optimizers.SGD(1e-6), loss_scale)


def joined(*batches: dict[str, Any]) -> dict[str, Any]:
    """Return batches as one set of examples."""
    return {name: np.concatenate([b[name] for b in batches]) for name in BATCH}
