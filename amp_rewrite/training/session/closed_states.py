"""What is left of the states of a session that is closed."""

from __future__ import annotations

from collections.abc import Mapping

from amp_rewrite.errors import RunError
from amp_rewrite.runtimes.ort.ort_values import Array


class ClosedStates:
    """Answers for the optimizer's states after their session: single numbers are kept.

    The learning rate, the steps and the loss scale are what training left. Larger tensors went with
    the session: their initial values would be mistaken for trained ones.
    """

    def __init__(self, numbers: Mapping[str, Array]) -> None:
        """Keep the last values of single numbers, by the names of their states."""
        self._known = dict(numbers)

    def read_state(self, name: str) -> Array:
        """Return the last value of a state, or what was assigned since.

        Raises:
            RunError: It is not kept.
        """
        if name not in self._known:
            raise RunError(
                "the session that held the state is closed",
                where=name,
                remedy="read it before the session is closed, or save a checkpoint",
            )
        return self._known[name].copy()

    def assign_state(self, name: str, value: Array) -> None:
        """Keep a value that sessions to come begin with."""
        self._known[name] = value
