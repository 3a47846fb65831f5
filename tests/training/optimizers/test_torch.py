"""The same steps as torch.optim takes, dense and, for lazy Adam, sparse."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from amp_rewrite import optimizers
from amp_rewrite.training.graph.training_graph import value
from amp_rewrite.training.session.training_session import TrainingSession

torch: Any = pytest.importorskip("torch")

RATE = 0.03125
SHAPE = (5, 3)

PAIRS: dict[str, tuple[optimizers.Optimizer, Callable[[Any], Any]]] = {
    "SGD": (
        optimizers.SGD(RATE),
        lambda p: torch.optim.SGD(p, RATE),
    ),
    "momentum": (
        optimizers.SGD(RATE, momentum=0.9),
        lambda p: torch.optim.SGD(p, RATE, momentum=0.9),
    ),
    "Nesterov": (
        optimizers.SGD(RATE, momentum=0.9, nesterov=True),
        lambda p: torch.optim.SGD(p, RATE, momentum=0.9, nesterov=True),
    ),
    "Adagrad": (
        optimizers.Adagrad(RATE, initial_accumulator_value=0.1),
        lambda p: torch.optim.Adagrad(p, RATE, initial_accumulator_value=0.1),
    ),
    "Adadelta": (
        optimizers.Adadelta(RATE, rho=0.9),
        lambda p: torch.optim.Adadelta(p, RATE, rho=0.9),
    ),
    "RMSprop": (
        optimizers.RMSProp(RATE, decay=0.99, momentum=0.5),
        lambda p: torch.optim.RMSprop(p, RATE, alpha=0.99, momentum=0.5),
    ),
    "centered RMSprop": (
        optimizers.RMSProp(RATE, decay=0.9, centered=True, epsilon=1e-3),
        lambda p: torch.optim.RMSprop(p, RATE, alpha=0.9, centered=True, eps=1e-3),
    ),
    "Adam": (optimizers.Adam(RATE), lambda p: torch.optim.Adam(p, RATE)),
    "AMSGrad": (
        optimizers.Adam(RATE, amsgrad=True),
        lambda p: torch.optim.Adam(p, RATE, amsgrad=True),
    ),
    "AdamW of AMSGrad": (
        optimizers.AdamW(RATE, weight_decay=0.125, amsgrad=True),
        lambda p: torch.optim.AdamW(p, RATE, weight_decay=0.125, amsgrad=True),
    ),
    "AdamW": (
        optimizers.AdamW(RATE, weight_decay=0.125),
        lambda p: torch.optim.AdamW(p, RATE, weight_decay=0.125),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_thirty_steps_agree_with_torch(name: str, dense_model: Callable[..., ir.Model]) -> None:
    given, make = PAIRS[name]
    optimizer = type(given).from_config(given.get_config())
    rng = np.random.default_rng(5)
    initial = rng.normal(size=SHAPE)
    parameter = torch.nn.Parameter(torch.tensor(initial))
    other = make([parameter])
    model = dense_model(initial)
    with TrainingSession(optimizer.minimize(value(model, "loss"))) as session:
        for _ in range(30):
            g = rng.normal(size=SHAPE)
            session.run({"g": g})
            parameter.grad = torch.tensor(g)
            other.step()
            found = session.state_dict()["w"]
            np.testing.assert_allclose(found, parameter.detach().numpy(), rtol=1e-10, atol=1e-10)


def test_lazy_adam_agrees_with_torchs_sparse_adam(sparse_model: Callable[..., ir.Model]) -> None:
    rng = np.random.default_rng(6)
    initial = rng.normal(size=SHAPE)
    parameter = torch.nn.Parameter(torch.tensor(initial))
    other = torch.optim.SparseAdam([parameter], RATE)
    optimizer = optimizers.Adam(RATE, lazy=True)
    model = sparse_model(initial)
    with TrainingSession(optimizer.minimize(value(model, "loss"))) as session:
        for _ in range(30):
            ids = rng.integers(0, SHAPE[0], 4)
            g = rng.normal(size=(4, SHAPE[1]))
            session.run({"g": g, "ids": ids})
            parameter.grad = torch.sparse_coo_tensor(
                torch.tensor(ids)[None], torch.tensor(g), SHAPE, check_invariants=False
            )
            other.step()
            found = session.state_dict()["w"]
            np.testing.assert_allclose(found, parameter.detach().numpy(), rtol=1e-7, atol=1e-7)
