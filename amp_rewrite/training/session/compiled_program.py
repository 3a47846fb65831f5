"""A compiled step, or a part of one: an ONNX Runtime session with its state bound twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.runtimes.ort.device import Device
from amp_rewrite.runtimes.ort.ort_values import copy_of, to_ort_value
from amp_rewrite.runtimes.ort.sessions import Binding, Session
from amp_rewrite.runtimes.session import Provider
from amp_rewrite.training.step.cut_step import Stage
from amp_rewrite.training.step.step_info import StepInfo

StateTensors = Mapping[str, Any]
"""State name -> OrtValue."""


WHAT = "the step"
"""What errors call a model that a program loads."""


class CompiledProgram:
    """A model that ONNX Runtime has loaded, whose states stay where they are.

    Attributes:
        info: The description of the model: its inputs, states and fetches.
        device: Where the states are.
        session: The loaded model.
        bindings: For each set of states, what a run from it reads and writes.
    """

    def __init__(
        self,
        model: ir.Model,
        info: StepInfo,
        sets: Sequence[StateTensors],
        *,
        options: Any,
        providers: Sequence[Provider],
        device: Device,
        updates: bool = True,
    ) -> None:
        """Load a model and bind its states.

        Args:
            model: A step without defaults of states.
            info: Its description.
            sets: Two sets of states; run i reads set i and writes set 1 - i.
            options: SessionOptions.
            providers: Execution providers.
            device: Where the states are.
            updates: Whether the model computes the next states.

        Raises:
            RunError: ONNX Runtime cannot load the model, or cannot start the preferred provider.
        """
        self.info = info
        self.device = device
        self.session = self._load(model, providers, options)
        self.bindings = [
            self._bind(sets[i], sets[1 - i] if updates else None) for i in range(len(sets))
        ]

    def _load(self, model: ir.Model, providers: Sequence[Provider], options: Any) -> Any:
        return Session(model, providers=providers, options=options, what=WHAT)

    def _bind(self, states: StateTensors, following: StateTensors | None) -> Any:
        binding = self.session.bind()
        self._bind_fetches(binding)
        for state in self.info.states:
            binding.read(state.name, states[state.name])
            if following is not None:
                binding.write(state.output, following[state.name])
        return binding

    def _bind_fetches(self, binding: Binding) -> None:
        """Let the runtime allocate the fetches on the host."""
        for output in self.info.fetches.values():
            binding.allocate(output)

    def run(self, current: int, feeds: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Run once from the states of set `current`; return the fetches.

        Args:
            current: Which set of states to read.
            feeds: Data input -> array or OrtValue, checked.

        Raises:
            RunError: ONNX Runtime reports an error; the states of set `current` are as before.
        """
        binding = self.bindings[current]
        for name, tensor in feeds.items():
            binding.read(name, to_ort_value(tensor, self.device))
        binding.run("ONNX Runtime cannot run the step on these feeds")
        outputs = binding.outputs(self.info.fetches.values())
        return {n: copy_of(v) for n, v in zip(self.info.fetches, outputs, strict=True)}

    def end_profiling(self) -> str:
        """End profiling, which the options began; return the path of the profile."""
        return self.session.end_profiling()


class StageProgram(CompiledProgram):
    """One stage, loaded by ONNX Runtime."""

    failure = "ONNX Runtime cannot run the step on these feeds"

    def __init__(
        self,
        stage: Stage,
        info: StepInfo,
        sets: Sequence[StateTensors],
        targets: Mapping[str, Any],
        **options: Any,
    ) -> None:
        """Load a stage and bind the states that it reads and writes.

        Args:
            stage: The stage.
            info: The description of the whole step.
            sets: See `CompiledProgram`.
            targets: Output -> OrtValue that it is written to.
            **options: See `CompiledProgram`.
        """
        graph = stage.model.graph
        inputs, outputs = {v.name for v in graph.inputs}, {v.name for v in graph.outputs}
        self._reads = [s for s in info.states if s.name in inputs]
        self._writes = [s for s in info.states if s.output in outputs]
        self._feeds = [name for name in info.inputs if name in inputs]
        self._enters, self._targets = stage.enters, targets
        bound = {s.output for s in self._writes} | set(targets)
        self._leaves = [name for name in stage.leaves if name not in bound]
        self._sets = sets
        super().__init__(stage.model, info, sets, **options)

    def _bind(self, states: StateTensors, following: StateTensors | None) -> Any:
        binding = self.session.bind()
        for state in self._reads:
            binding.read(state.name, self._bound(states[state.name]))
        for state in self._writes:
            assert following is not None, "stages compute the next states"
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
        """Run once; add what leaves the stage to `values`, in which it finds what enters it.

        Raises:
            RunError: ONNX Runtime reports an error.
        """
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
