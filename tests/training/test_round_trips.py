"""Whatever is done to an optimizer, states are saved and restored by name, or an error says why."""

from __future__ import annotations

import copy
import pickle
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import amp_rewrite as amp
from amp_rewrite import optimizers as opt
from amp_rewrite.distributed import shard_context
from amp_rewrite.errors import AmpError, AmpWarning
from amp_rewrite.training.global_state import global_state

MODEL = """<ir_version: 8, opset_import: ["": 17]>
m (float[2] g, float[2, 2] h) => (float loss)
<float[2] w = {1, 2}, float[2, 2] v = {1, 2, 3, 4}> {
    p = Mul(w, g)
    s = ReduceSum<keepdims=0>(p)
    q = Mul(v, h)
    t = ReduceSum<keepdims=0>(q)
    loss = Add(s, t)
}"""
FEEDS = {"g": np.array([3, -4], np.float32), "h": np.full((2, 2), 0.5, np.float32)}
VARIABLES = (["w"], ["v"], ["w", "v"], None)
SLOTS = ("avg", "m", "before")

MAKES: tuple[Callable[[], Any], ...] = (
    lambda: opt.Adam(0.1),
    lambda: amp.LossScaleOptimizer(opt.Adam(0.1), amp.DynamicLossScale(8.0, 2)),
    lambda: amp.CrossShardOptimizer(amp.LossScaleOptimizer(opt.Adam(0.1), 8.0)),
    lambda: amp.LossScaleOptimizer(amp.CrossShardOptimizer(opt.Momentum(0.1, 0.5))),
    lambda: amp.LossScaleOptimizer(opt.WeightAverage(opt.Adam(0.1))),
    lambda: opt.OptimizerWrapper(opt.OptimizerWrapper(opt.RMSProp(0.1, centered=True))),
    lambda: opt.OptimizerWrapper(opt.RMSProp(0.1)),
    lambda: amp.LossScaleOptimizer(
        opt.ParameterGroups(opt.Adam(0.1), [{"variables": "v", "optimizer": opt.Momentum(0.1)}])
    ),
)
"""Optimizers, most of them two wrappers deep; RMSProp has a slot more if it is centered."""

States = dict[str, np.ndarray]


@dataclass
class Trial:
    """An optimizer, its model, a session of the last step, and what was saved of one.

    Attributes:
        folder: Where checkpoints are written.
        optimizer: The optimizer.
        loss: What it minimizes.
        op: The last step, or None.
        session: Its session, or None.
        saved: State -> what it was when the checkpoint was written; or None.
    """

    folder: Path
    optimizer: Any = field(default_factory=lambda: MAKES[0]())
    loss: Any = field(default_factory=lambda: loss_of())
    op: Any = None
    session: Any = None
    saved: States | None = None

    def close(self) -> None:
        if self.session is not None:
            self.session.close()
        self.op = self.session = None

    def rebuild(self, number: int) -> None:
        """Begin with another optimizer on a fresh model, as another process does."""
        self.close()
        self.optimizer, self.loss = MAKES[number % len(MAKES)](), loss_of()

    def minimize(self, number: int) -> None:
        self.close()
        variables = VARIABLES[number % len(VARIABLES)]
        self.op = self.optimizer.minimize(self.loss, var_list=variables)

    def apply(self, number: int) -> None:
        self.close()
        pairs = self.optimizer.compute_gradients(self.loss, VARIABLES[number % len(VARIABLES)])
        self.op = self.optimizer.apply_gradients(pairs, "mine" if number % 2 else None)

    def slot(self, number: int) -> None:
        variable = self.loss.graph.variable("wv"[number % 2])
        state = self.optimizer.add_slot(variable, SLOTS[number % len(SLOTS)], float(number))
        assert state in self.optimizer.weights
        self.close_session()

    def weight(self, number: int) -> None:
        state = self.optimizer.add_weight("extra", (number % 3,), initializer="ones")
        assert state in self.optimizer.weights
        self.close_session()

    def close_session(self) -> None:
        """A session holds the states that were there when it began."""
        if self.session is not None:
            self.session.close()
            self.session = None

    def opened(self) -> Any:
        """Return the session of the last step; every state that was added is in it."""
        if self.op is None:
            self.minimize(3)
        if self.session is None:
            op: Any = self.op
            self.session = amp.TrainingSession(op)
        kept = {name for name, state in self.loss.graph.states.items() if state.kept}
        assert kept | set(self.op.updates) <= set(self.session.state_dict())
        return self.session

    def run(self, number: int) -> None:
        for _ in range(1 + number % 2):
            self.opened().run({**FEEDS, "g": FEEDS["g"] + number})

    def save(self, number: int) -> None:
        del number
        self.opened().save(self.folder / "c.safetensors")
        self.saved = self.opened().state_dict()

    def restore(self, number: int) -> None:
        """Restore by name: what was saved, or what it was before where nothing was taken."""
        if self.saved is None:
            return
        session, strict = self.opened(), bool(number % 2)
        before = session.state_dict()
        try:
            session.restore(self.folder / "c.safetensors", strict=strict)
        except AmpError:
            same(session.state_dict(), before)
            raise
        after, left = session.state_dict(), session.restored.left
        for name in after.keys() - set(session.restored.begun):
            taken = name in self.saved and name not in left
            assert not (strict and name in left)
            expected = self.saved[name] if taken else before[name]
            same({name: after[name]}, {name: expected}, strict, name)

    def weights(self, number: int) -> None:
        self.opened()
        before = self.optimizer.get_weights()
        wanted = [np.full_like(array, number) for array in before]
        self.optimizer.set_weights(wanted)
        for found, expected in zip(self.optimizer.get_weights(), wanted, strict=True):
            np.testing.assert_array_equal(found, expected)
        with pytest.raises(AmpError):
            self.optimizer.set_weights([*wanted[:-1], np.zeros(7)])
        self.optimizer.set_weights(before)

    def config(self, number: int) -> None:
        """Go on with the optimizer that the configuration makes."""
        config = self.optimizer.get_config()
        again = type(self.optimizer).from_config(config)
        assert again.get_config() == config
        if number % 2:
            self.close()
            self.optimizer, self.loss = again, loss_of()

    def copies(self, number: int) -> None:
        """Go on with a copy; of what has built a step there is none, and it stays as it was."""
        copied = copy.deepcopy if number % 2 else lambda o: pickle.loads(pickle.dumps(o))
        if self.op is not None:
            before = step_of(self.op)
            with pytest.raises(AmpError, match="cannot be copied or pickled"):
                copied(self.op)
            assert step_of(self.op) == before
        again = copied(self.optimizer)
        assert again.get_config() == self.optimizer.get_config()
        self.optimizer = again

    def enable(self, number: int) -> None:
        del number
        wrapped = amp.enable_mixed_precision_graph_rewrite(self.optimizer)
        self.close()
        self.optimizer, self.loss = wrapped, loss_of()

    def disable(self, number: int) -> None:
        del number
        amp.disable_mixed_precision_graph_rewrite()
        self.close_session()

    def end(self, number: int) -> None:
        """See whether there is still a session with every state that was added."""
        assert self.opened().read_state(next(iter(self.op.updates))) is not None, number

    def mix(self, number: int) -> None:
        """Refuse what is of another model, and leave the step as it was."""
        if self.op is None:
            self.minimize(number)
        other = loss_of()
        (own,) = opt.GradientDescent().compute_gradients(self.loss, ["w"])
        (foreign,) = opt.GradientDescent().compute_gradients(other, ["v"])
        before = step_of(self.op)
        calls: list[Callable[[], Any]] = [
            lambda: self.optimizer.minimize(self.loss, other.graph.global_step()),
            lambda: self.optimizer.apply_gradients([own, foreign]),
            lambda: self.optimizer.compute_gradients(self.loss, [foreign[1]]),
            lambda: self.optimizer.compute_gradients(self.loss, grad_loss=other),
        ]
        with pytest.raises(AmpError):
            calls[number % len(calls)]()
        assert step_of(self.op) == before


ACTIONS = (
    *("rebuild", "minimize", "apply", "slot", "weight", "run", "save", "restore", "restore"),
    *("weights", "config", "copies", "enable", "disable", "mix"),
)
SEQUENCES = st.lists(
    st.tuples(st.sampled_from(ACTIONS), st.integers(0, 23)), min_size=2, max_size=9
)


def loss_of() -> Any:
    return amp.value(amp.load(onnx.parser.parse_model(MODEL)), "loss")


def step_of(op: Any) -> bytes:
    return amp.to_proto(amp.build_step(op)).SerializeToString(deterministic=True)


def same(found: States, expected: States, *facts: object) -> None:
    assert found.keys() == expected.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name], err_msg=f"{name} {facts}")


@contextmanager
def fresh() -> Iterator[None]:
    """Begin as a new process does, in a context of shards, without warnings."""
    global_state.reset()
    try:
        with shard_context(), warnings.catch_warnings():
            warnings.simplefilter("ignore", AmpWarning)
            yield
    finally:
        global_state.reset()


def holds(sequence: list[tuple[str, int]]) -> int:
    """Carry out a sequence; return how many actions were not refused."""
    done = 0
    with fresh(), tempfile.TemporaryDirectory() as folder:
        trial = Trial(Path(folder))
        for name, number in (*sequence, ("end", 0)):
            try:
                getattr(trial, name)(number)
                done += 1
            except AmpError:
                continue
        trial.close()
    return done - 1


QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck), "derandomize": True}


@settings(max_examples=15, **QUIET)
@given(SEQUENCES)
@example([("rebuild", 6), ("run", 0), ("save", 0), ("rebuild", 5), ("restore", 0)])
@example([("slot", 2), ("weight", 1), ("save", 0), ("rebuild", 2), ("run", 1), ("restore", 0)])
def test_states_make_the_round_trip_by_name_or_an_error_says_why_not(
    sequence: list[tuple[str, int]],
) -> None:
    assert holds(sequence) <= len(sequence)


@pytest.mark.slow
@settings(max_examples=2000, **QUIET)
@given(SEQUENCES)
def test_states_make_the_round_trip_in_two_thousand_sequences(
    sequence: list[tuple[str, int]],
) -> None:
    assert holds(sequence) <= len(sequence)


def test_most_actions_are_carried_out() -> None:
    sequence = [(name, 0) for name in ACTIONS if name not in ("copies", "disable")]
    assert holds(sequence) == len(sequence)
