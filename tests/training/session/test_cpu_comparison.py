"""A provider that is not known is held to the CPU before it may train."""

from typing import Any

import numpy as np
import pytest
from low_steps import batch, train_op

from amp_rewrite.errors import RunError
from amp_rewrite.targets import CPU
from amp_rewrite.training.session import cpu_comparison
from amp_rewrite.training.session.compiled_program import CompiledProgram
from amp_rewrite.training.session.cpu_comparison import STEPS
from amp_rewrite.training.session.training_session import TrainingSession


@pytest.fixture
def unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the CPU provider be one that no target stands for."""
    monkeypatch.setattr(cpu_comparison, "of_provider", lambda _: None)


@pytest.mark.usefixtures("unknown")
@pytest.mark.parametrize("optimizer", ["plain", "if"])
def test_a_provider_that_computes_as_the_cpu_trains(optimizer: str) -> None:
    with TrainingSession(train_op("mlp", optimizer)) as held:
        found = [float(held.run(batch(seed=i))["loss"]) for i in range(STEPS + 2)]
    assert len(found) == STEPS + 2
    assert np.isfinite(found).all()


@pytest.mark.usefixtures("unknown")
@pytest.mark.parametrize("name", ["beta1_power", "layer0.weight", "layer0.weight/Adam"])
def test_a_provider_that_returns_old_values_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original: Any = CompiledProgram.run

    def stale(program: Any, current: int, feeds: Any) -> Any:
        found = original(program, current, feeds)
        compiled: Any = session._programs.get(("loss",), updates=True)  # pyright: ignore[reportPrivateUsage]
        if program is compiled:
            old = session._states.sets[current][name].numpy()  # pyright: ignore[reportPrivateUsage]
            session._states.sets[1 - current][name].update_inplace(np.array(old))  # pyright: ignore[reportPrivateUsage]
        return found

    monkeypatch.setattr(CompiledProgram, "run", stale)
    with TrainingSession(train_op()) as session:
        before = session.state_dict()
        with pytest.raises(RunError, match=f"{CPU}: .*does not compute the step .* role"):
            session.run(batch())
        after = session.state_dict()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_known_providers_are_not_held() -> None:
    with TrainingSession(train_op()) as session:
        assert session._held is None  # pyright: ignore[reportPrivateUsage]
