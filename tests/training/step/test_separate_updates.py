"""Next states that shared nodes are computed apart, and come out bit for bit the same."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser

import amp_rewrite as amp
from amp_rewrite.graph.clone import clone
from amp_rewrite.graph.io.functions import inline
from amp_rewrite.graph.metadata_keys import PREPARED_KEY
from amp_rewrite.graph.traverse import ancestors
from amp_rewrite.optimizers import Adam, GradientDescent, Momentum, WeightAverage
from amp_rewrite.runtimes.openvino.compiled_model import Session as OpenVino
from amp_rewrite.runtimes.ort.sessions import Session
from amp_rewrite.training.graph.prepare import record_types
from amp_rewrite.training.step.separate_updates import separate_updates
from amp_rewrite.training.step.step import whole_step

TEXT = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2, {size}] x) => (float loss) {{
        y = MatMul(x, w)
        a = Tanh(y)
        loss = ReduceMean<keepdims = 0>(a) }}"""


def models(optimizer: Any, size: int = 64) -> tuple[ir.Model, ir.Model, tuple[str, ...]]:
    """Return a step, the same with updates apart, and the names of the weight's next states."""
    proto = parser.parse_model(TEXT.format(size=size))
    weight = np.random.default_rng(0).normal(size=(size, 64)).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    model = amp.load(proto)
    step = whole_step(optimizer.minimize(amp.value(model, "loss")))
    joined, info = step.cut(["loss"])
    inline(joined)
    joined.meta.pop(PREPARED_KEY)
    record_types(joined)
    apart = clone(joined)
    separate_updates(apart, info.names)
    large = [s.output for s in info.states if s.name == "w" or s.name.startswith("w/")]
    return joined, apart, tuple(large)


def shared(model: ir.Model, names: tuple[str, ...]) -> set[str]:
    """Return the operators of one element that compute two of the outputs."""
    outputs = [value for value in model.graph.outputs if value.name in names]
    found: set[str] = set()
    for output in outputs:
        others = ancestors([value for value in outputs if value is not output])
        both = ancestors([output]) & others
        found |= {n.op_type for n in both if n.outputs[0].shape == output.shape}
    return found - {"Gemm", "MatMul"}


@pytest.mark.parametrize(
    ("make", "states"),
    [
        (lambda: Adam(0.01), 3),
        (lambda: Momentum(0.1), 2),
        (lambda: WeightAverage(Adam(0.01)), 4),
    ],
)
def test_they_share_nothing_and_are_the_same(make: Callable[[], Any], states: int) -> None:
    joined, apart, names = models(make())
    assert len(names) == states
    assert shared(joined, names)
    assert not shared(apart, names)
    x = np.random.default_rng(1).normal(size=(2, 64)).astype(np.float32)
    feeds = {"x": x}
    found, expected = (Session(m).run(feeds, ["loss", *names]) for m in (apart, joined))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("optimizer", "size"), [(GradientDescent(0.1), 64), (Adam(0.1), 8)])
def test_what_shares_nothing_or_is_small_is_left(optimizer: Any, size: int) -> None:
    joined, apart, _ = models(optimizer, size)
    assert len(apart.graph) == len(joined.graph)


@pytest.mark.openvino
@pytest.mark.usefixtures("openvino")
@pytest.mark.filterwarnings("ignore:OpenVINO computes int64")
def test_openvino_makes_one_node_of_an_update_that_is_apart() -> None:
    joined, apart, _ = models(Adam(0.01))
    x = np.random.default_rng(1).normal(size=(2, 64)).astype(np.float32)
    rooted = [_from_root_to_weight(model, x) for model in (joined, apart)]
    assert rooted == [False, True]


def _from_root_to_weight(model: ir.Model, x: Any) -> bool:
    """Return whether OpenVINO computes the root of v and what it makes of w in one node."""
    ends = [n.name for n in model.graph if n.op_type == "Sqrt" and n.outputs[0].shape == (64, 64)]
    # Weights are fed: a default would be a constant, and what follows from it computed on loading.
    fed = [str(value.name) for value in model.graph.inputs]
    session = OpenVino(clone(model), fed=fed, profile=True, static=True)
    session.run({"x": x})
    return any({*ends, "w:next"} <= set(node.covers) for node in session.ran_nodes())
