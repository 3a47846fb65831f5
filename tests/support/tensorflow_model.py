"""The model of the tests about TensorFlow's documents, and what a step makes of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser

import amp_rewrite as amp

MODEL = """<ir_version: 8, opset_import: ["": 17]>
m (float[2] g, float[n, 2] h, int64[n] ids) => (float loss)
<float[2] w = {1, 2}, float[3, 2] table = {1, 2, 3, 4, 5, 6}, float[1] unused = {7},
 int64[1] axes = {0}, int64 counter = {40}> {
    p = Mul(w, g)
    s = ReduceSum<keepdims=0>(p)
    rows = Gather(table, ids)
    q = Mul(rows, h)
    t = ReduceSum<keepdims=0>(q)
    loss = Add(s, t)
    vector = Mul(p, p)
    other = ReduceSum<keepdims=0>(unused, axes)
    whole = Cast<to=7>(loss)
    rounded = Round(s)
}"""
"""The gradient of w is what is fed as g; that of the rows of the table is what is fed as h."""

G = np.array([3.0, -4.0], np.float32)
FEEDS = {"g": G, "h": np.full((3, 2), 0.5, np.float32), "ids": np.array([2, 0, 2])}
INF = {**FEEDS, "g": np.array([np.inf, 1], np.float32)}


def loss_of(name: str = "loss", more: str = "") -> amp.GraphValue:
    """Return a value of the model, to which `more` nodes can be added."""
    text = f"{MODEL.removesuffix('}')} {more} }}"
    return amp.value(amp.load(onnx.parser.parse_model(text)), name)


def states(op: Any, feeds: Any = FEEDS, steps: int = 1) -> dict[str, np.ndarray]:
    """Return the states after some steps."""
    with amp.TrainingSession(op) as session:
        for _ in range(steps):
            session.run(feeds)
        return session.state_dict()
