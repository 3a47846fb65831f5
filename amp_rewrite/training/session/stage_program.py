"""Run a part of a step: what enters it comes from other parts, and what leaves it goes to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from amp_rewrite.runtimes.ort.ort_values import to_ort_value
from amp_rewrite.training.session.compiled_program import CompiledProgram, StateTensors
from amp_rewrite.training.step.cut_step import Stage
from amp_rewrite.training.step.step_info import StepInfo


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
