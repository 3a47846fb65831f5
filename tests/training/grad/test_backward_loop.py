"""What a Loop gives out for its gradient."""

from __future__ import annotations

import numpy as np
import pytest
from loop_models import differentiated, model_of, run

from amp_rewrite.graph.traverse import remove_unused_nodes
from amp_rewrite.training.grad.backward_loop import drop_unused_history

SINES = """(float[2] x, int64 n) => (float[2] y, float[M,2] z) {
    y, z = Loop(n, , x) <body = turn (int64 i, bool go, float[2] a)
            => (bool on, float[2] b, float[2] c) {
        on = Identity(go)
        b = Sin(a)
        c = Cos(a)
    }>
}"""


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_loop_gives_out_nothing_for_a_gradient_that_is_not_computed(outputs: int) -> None:
    model = model_of(SINES)
    differentiated(model, ["x"])
    graph = model.graph
    kept = graph.outputs[:outputs]
    graph.outputs.clear()
    graph.outputs.extend(kept)
    del graph.inputs[2:]
    forward = graph[0]
    remove_unused_nodes(graph)
    drop_unused_history(graph)
    assert len(forward.outputs) == outputs
    assert len(forward.attributes["body"].as_graph()) == 1 + outputs
    found = run(model, {"x": np.ones(2, "f"), "n": np.array(2)})
    np.testing.assert_allclose(found["y"], np.sin(np.sin(np.ones(2))), rtol=1e-5)
