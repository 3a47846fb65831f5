"""Look into a step between two steps: its gradients, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from amp_rewrite.base import arguments
from amp_rewrite.errors import AmpError, OptionError, StepError
from amp_rewrite.runtimes.ort.ort_values import Array, is_ort_value, to_array
from amp_rewrite.training.diagnosis.diagnose import diagnose
from amp_rewrite.training.diagnosis.diagnosis import Diagnosis
from amp_rewrite.training.optimizers.gradient_accumulation import ACCUMULATOR
from amp_rewrite.training.session.feeds import Feeds, Inputs, as_feeds
from amp_rewrite.training.session.program_cache import ProgramCache
from amp_rewrite.training.session.state_access import StateAccess
from amp_rewrite.training.session.states import States
from amp_rewrite.training.step.step import Step

_SCALE = "loss_scale"


class Inspection(StateAccess):
    """What a session tells of its step without changing a state."""

    _states: States
    _step: Step
    _programs: ProgramCache
    _inputs: Inputs

    def gradients(self, feeds: Feeds) -> dict[str, Array]:
        """Compute the gradients of a batch, and update nothing.

        They are those of the backward pass, divided by the loss scale: before they are clipped,
        accumulated, or summed over shards, of which each has its own.

        Args:
            feeds: As for `run`.

        Returns:
            Variable -> the gradient of the loss, in the variable's shape.

        Raises:
            FeedError: As for `run`.
            OptionError: The step has several backward passes, or is not known to have one.
            StepError: It says of other values that they are a gradient.
            RunError: As for `run`.
        """
        self.check_open()
        info = self.info
        if not info.gradients:
            raise OptionError(
                "the step does not say which values are its gradients",
                found="several backward passes, or none",
                remedy="fetch the values by their names, with run",
            )
        rows = info.gradient_rows or {}
        scale = (_SCALE,) if _SCALE in info.fetches else ()
        names = tuple(dict.fromkeys((*info.gradients.values(), *rows.values(), *scale)))
        program = self._programs.get(names, updates=False, trains=True)
        fed = self._inputs.check(as_feeds(feeds), frozenset(program.info.inputs))
        results = program.run(self._states.current, fed)
        factor = np.float32(results[_SCALE]) if scale else np.float32(1)
        gradients = {variable: results[name] / factor for variable, name in info.gradients.items()}
        for variable, name in rows.items():
            gradients[variable] = self._dense(variable, gradients[variable], results[name])
        return gradients

    def diagnose(self, feeds: Feeds, *, last: bool = False) -> Diagnosis:
        """Run a batch once more, on the CPU, and say what is wrong with it; no state changes.

        Every value of the step is looked at: the first that is not finite is named, and what
        underflow takes from the gradients of each layer. A step in low precision is emulated, and
        compared with float32. Gradients that other batches have left for an update count as zero.

        Args:
            feeds: As for `run`.
            last: Begin with the states from which the last `run` began, as what it was fed needs.

        Raises:
            FeedError: As for `run`.
            RunError: ONNX Runtime cannot run it.
        """
        self.check_open()
        last = arguments.switch("last", last)
        fed_by_user = as_feeds(feeds)
        fed = self._inputs.check(fed_by_user, frozenset(self.info.inputs).intersection(fed_by_user))
        states = self._states.read_all(other=last)
        for state in self.info.states:
            if state.role == ACCUMULATOR:
                states[state.name] = np.zeros_like(states[state.name])
        return diagnose(self._step, states, self._on_host(fed), self._programs.sums)

    def cause(self, feeds: Feeds) -> str | None:
        """Return what was not finite in the last run, in words; None if that cannot be found.

        Args:
            feeds: What it was fed.
        """
        try:
            diagnosis = self.diagnose(feeds, last=True)
        except AmpError:  # the error that it is a part of says more
            return None
        return None if diagnosis.finite else diagnosis.text()

    def _dense(self, variable: str, values: Array, rows: Array) -> Array:
        """Return the gradient of a table of which a batch has read some rows."""
        table = self._step.model.graph.initializers[variable]
        assert table.shape is not None, "a variable has a value, and so a shape"
        dense = np.zeros(table.shape.numpy(), values.dtype)
        try:
            np.add.at(dense, rows, values)
        except (IndexError, ValueError) as error:
            raise StepError(
                "the step names other values than a gradient and its rows",
                where=variable,
                found=error,
                expected=f"rows of {list(dense.shape)}, and their numbers",
                remedy="build the step again",
            ) from error
        return dense

    def _on_host(self, fed: Mapping[str, Any]) -> dict[str, Array]:
        arrays: dict[str, Array] = {}
        for name, tensor in fed.items():
            dtype = self._inputs.declared[name].dtype
            if is_ort_value(tensor) and dtype is not None:
                arrays[name] = to_array(tensor, dtype)
            else:
                arrays[name] = np.asarray(tensor)
        return arrays
