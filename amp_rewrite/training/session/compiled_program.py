"""A compiled step, or a stage of one: an ONNX Runtime session with its state bound twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.runtimes.ort.device import Device
from amp_rewrite.runtimes.ort.ort_values import copy_of, to_ort_value
from amp_rewrite.runtimes.ort.sessions import Session
from amp_rewrite.runtimes.session import Provider
from amp_rewrite.training.step.cut_step import Stage
from amp_rewrite.training.step.step_info import StepInfo

StateTensors = Mapping[str, Any]
"""State name -> OrtValue."""

WHAT = "the step"
"""What errors call a model that a program loads."""


class Program:
    """Runs a step from the states of a set.

    Attributes:
        info: The description of the step: its inputs, states and fetches.
    """

    info: StepInfo

    def compute(self, current: int, feeds: Mapping[str, Any], values: dict[str, Any]) -> None:
        """Run once from the states of set `current`; write those of the other one.

        `values` gets what is computed, name -> OrtValue; a stage finds there what enters it. After
        an error the states of set `current` are as before.
        """
        raise NotImplementedError

    def run(self, current: int, feeds: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Run once, as `compute` does; return the fetches."""
        values: dict[str, Any] = {}
        self.compute(current, feeds, values)
        return {name: copy_of(values[v]) for name, v in self.info.fetches.items()}


class CompiledProgram(Program):
    """A stage that ONNX Runtime has loaded, whose states stay where they are."""

    failure = "ONNX Runtime cannot run the step on these feeds"

    def __init__(
        self,
        stage: Stage,
        info: StepInfo,
        sets: Sequence[StateTensors],
        targets: Mapping[str, Any] | None = None,
        *,
        options: Any,
        providers: Sequence[Provider],
        device: Device,
        updates: bool = True,
    ) -> None:
        """Load a stage of a step that `info` describes, and bind its states.

        A run from set i of the states reads `sets[i]` and writes the other one. `targets` has the
        OrtValues that outputs are written to. `updates` says whether next states are computed.
        """
        self.info, self.device, self._sets = info, device, sets
        graph = stage.model.graph
        inputs, outputs = {v.name for v in graph.inputs}, {v.name for v in graph.outputs}
        self._reads = [s for s in info.states if s.name in inputs]
        self._writes = [s for s in info.states if updates and s.output in outputs]
        self._feeds = [name for name in info.inputs if name in inputs]
        self._enters, self._targets = stage.enters, {} if targets is None else targets
        bound = {s.output for s in self._writes} | set(self._targets)
        self._leaves = [name for name in stage.leaves if name not in bound]
        self.session = self._load(stage.model, providers, options)
        self.bindings = [self._bind(sets[i], sets[1 - i]) for i in range(len(sets))]

    def _load(self, model: ir.Model, providers: Sequence[Provider], options: Any) -> Any:
        return Session(model, providers=providers, options=options, what=WHAT)

    def _bind(self, states: StateTensors, following: StateTensors) -> Any:
        binding = self.session.bind()
        for state in self._reads:
            binding.read(state.name, self._bound(states[state.name]))
        for state in self._writes:
            binding.write(state.output, self._bound(following[state.name]))
        for name, value in self._targets.items():
            binding.write(name, self._bound(value))
        for name in self._leaves:
            self._allocate(binding, name)
        return binding

    def _allocate(self, binding: Any, name: str) -> None:
        """Let every run allocate an output."""
        binding.allocate(name, self.device)

    def _bound(self, value: Any) -> Any:
        """Return what the engine binds for an OrtValue."""
        return value

    def _found(self, tensor: Any) -> Any:
        """Return an OrtValue for what the engine has computed."""
        return tensor

    def compute(self, current: int, feeds: Mapping[str, Any], values: dict[str, Any]) -> None:
        """See `Program`."""
        binding = self.bindings[current]
        for name in self._feeds:
            if name in feeds:
                binding.read(name, self._bound(to_ort_value(feeds[name], self.device)))
        for name in self._enters:
            binding.read(name, self._bound(values[name]))
        binding.run(self.failure)
        outputs = map(self._found, binding.outputs(self._leaves))
        values.update(zip(self._leaves, outputs, strict=True))
        values.update(self._targets)
        following = self._sets[1 - current]
        values.update((state.output, following[state.name]) for state in self._writes)
