"""The first steps on a provider that is not known, held to those of the CPU.

A provider may compute a step wrongly and say nothing: one was met that gave back old values, or
zeros, of the states that another device had computed. So a provider that no target stands for runs
its first steps beside the CPU, which begins each from the same states, and must change the states
as the CPU does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import RunError
from amp_rewrite.runtimes.ort.device import HOST
from amp_rewrite.runtimes.session import Provider, name_and_options
from amp_rewrite.targets import CPU, Target, of_provider
from amp_rewrite.training.session.program_cache import ProgramCache, default_options
from amp_rewrite.training.session.states import States
from amp_rewrite.training.step.step import Step

STEPS = 3
"""How many steps are held to the CPU's: an old value shows in the second."""

NEAR, NEAR_LOW = 0.1, 0.5
"""How far changes may be from the CPU's, as a share of them, in float32 and in low precision: the
gradients of some weights are nothing but rounding, and may have any sign."""

Values = Mapping[str, np.ndarray[Any, Any]]


class CpuComparison:
    """Runs the first steps of a session once more, on the CPU, and compares."""

    def __init__(self, step: Step, provider: str, target: Target) -> None:
        """Compile nothing yet."""
        self._provider = provider
        self._near = NEAR if step.info.precision == FLOAT32.name else NEAR_LOW
        self._roles = {state.name: state.role for state in step.info.states}
        self._states = States(step.info.states, step.initial(), HOST)
        self._programs = ProgramCache(
            step,
            self._states.sets,
            options=default_options(0, step, HOST),
            providers=[CPU],
            device=HOST,
            target=target,
            emulate=False,
        )
        self._left = STEPS

    def check(
        self, states: States, feeds: Mapping[str, Any], *, applies: bool | None = None
    ) -> None:
        """Compare what a step has made of the states; does nothing after the first steps.

        Args:
            states: Those of the session, before they advance.
            feeds: What the step was fed.
            applies: See `ProgramCache.get`.

        Raises:
            RunError: The provider changes them otherwise than the CPU.
        """
        if self._left == 0:
            return
        self._left -= 1
        before = states.read_all()
        for name, array in before.items():
            self._states.write(name, array)
        program = self._programs.get((), updates=True, applies=applies)
        program.run(self._states.current, feeds)
        expected, results = self._states.read_all(other=True), states.read_all(other=True)
        for role in dict.fromkeys(self._roles.values()):
            names = [name for name, other in self._roles.items() if other == role]
            old, wanted, new = (_joined(v, names) for v in (before, expected, results))
            if not _agree(old, wanted, new, self._near):
                raise RunError(
                    "the execution provider does not compute the step that the CPU computes",
                    where=self._provider,
                    found=f"other values of the states of role {role!r}",
                    expected="those of the CPU, within rounding",
                    remedy=f"train with provider {CPU}, or with one that a target stands for",
                )


def _joined(values: Values, names: Sequence[str]) -> np.ndarray[Any, Any]:
    return np.concatenate([values[name].astype(np.float64).reshape(-1) for name in names])


def _agree(
    before: np.ndarray[Any, Any],
    expected: np.ndarray[Any, Any],
    result: np.ndarray[Any, Any],
    near: float,
) -> bool:
    """Tell whether a change is the expected one; what is not finite must be so in both."""
    finite = np.isfinite(expected)
    if not np.array_equal(finite, np.isfinite(result)):
        return False
    change = np.linalg.norm((expected - before)[finite & np.isfinite(before)])
    rounding = np.finfo(np.float32).eps * np.linalg.norm(expected[finite])
    return bool(np.linalg.norm((result - expected)[finite]) <= near * change + 4 * rounding)


def cpu_comparison(
    step: Step, providers: Sequence[Provider], target: Target
) -> CpuComparison | None:
    """Return what holds a provider to the CPU; None for one that a target stands for."""
    name, _ = name_and_options(providers[0])
    return None if of_provider(name) is not None else CpuComparison(step, name, target)
