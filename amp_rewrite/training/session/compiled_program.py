"""A compiled step, or a stage of one, on ONNX Runtime or OpenVINO, with its state bound twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import OptionError, RunError
from amp_rewrite.grad.prepare import record_types
from amp_rewrite.graph.clone import clone
from amp_rewrite.graph.io.functions import inline
from amp_rewrite.graph.metadata_keys import PREPARED_KEY
from amp_rewrite.graph.proto.infer_in_place import infer_in_place
from amp_rewrite.runtimes.engines import give_back, open_session
from amp_rewrite.runtimes.ort.device import Device
from amp_rewrite.runtimes.ort.ort_values import copy_of, shared_array, to_ort_value
from amp_rewrite.runtimes.ort.providers import check_form
from amp_rewrite.runtimes.ort.sessions import Session, session_options
from amp_rewrite.runtimes.session import Provider, name_and_options
from amp_rewrite.targets import CPU, OPENVINO, provider_named
from amp_rewrite.training.session.device_limits import check_fed_integers
from amp_rewrite.training.session.feeds import feed_shape
from amp_rewrite.training.step.convolved_gradients import convolve_gradients
from amp_rewrite.training.step.cut_step import Stage
from amp_rewrite.training.step.faster_forms import (
    compute_random_in_32_bits,
    move_blocks,
    separate_factors,
)
from amp_rewrite.training.step.number_stages import number_stages
from amp_rewrite.training.step.step_info import StepInfo

StateTensors = Mapping[str, Any]
"""State name -> OrtValue."""

WHAT = "the step"
"""The name in errors of a model that a program loads."""


class Program:
    """A compiled step, which `info` describes, or a stage of it."""

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


STATIC = 4
"""A step is compiled for each of this number of feed shapes: a batch, the last one of an epoch, and
those of evaluation have one each, but texts of any length have many."""

Lengths = tuple[int, ...]

_Shapes = Mapping[str, tuple[int, ...]]


def is_openvino(providers: Sequence[Provider]) -> bool:
    """Return whether OpenVINO is the preferred provider, an engine of its own."""
    return name_and_options(providers[0])[0] == OPENVINO


def named(providers: Sequence[Provider]) -> list[Provider]:
    """Return providers, those of targets by their names; OpenVINO must be alone."""
    check_form(providers)
    resolved: list[Provider] = []
    for provider in providers:
        name, options = name_and_options(provider)
        provider_name = OPENVINO if name.lower() == OPENVINO.lower() else provider_named(name)
        resolved.append((provider_name, options) if options else provider_name)
    names = [name_and_options(provider)[0] for provider in resolved]
    if OPENVINO in names and len(names) > 1:
        raise OptionError(
            "OpenVINO is an engine of its own, which takes the whole step",
            found=", ".join(names),
            expected=OPENVINO,
            remedy="name one provider",
        )
    return resolved


def stage_runner(
    stage: Stage,
    info: StepInfo,
    sets: Sequence[StateTensors],
    targets: Mapping[str, Any],
    *,
    providers: Sequence[Provider],
    **options: Any,
) -> CompiledProgram | OpenVinoStages:
    """Return what runs a stage on the preferred provider; the arguments are `CompiledProgram`'s."""
    runner = OpenVinoStages if is_openvino(providers) else CompiledProgram
    return runner(stage, info, sets, targets, providers=providers, **options)


class _OpenVinoStage(CompiledProgram):
    """One stage, loaded by OpenVINO: its bindings are of arrays that share OrtValues' memory."""

    failure = "OpenVINO cannot run the step on these feeds"

    def _load(self, model: ir.Model, providers: Sequence[Provider], options: Any) -> Any:
        return open_session(model, providers=providers, threads=options, what=WHAT)

    def _allocate(self, binding: Any, name: str) -> None:
        binding.allocate(name)

    def _bound(self, value: Any) -> Any:
        return shared_array(value)

    def _found(self, tensor: Any) -> Any:
        return to_ort_value(tensor, self.device)


class OpenVinoStages(Program):
    """A stage whose tensors OpenVINO computes, and whose single numbers ONNX Runtime."""

    def __init__(
        self,
        stage: Stage,
        info: StepInfo,
        sets: Sequence[StateTensors],
        targets: Mapping[str, Any],
        *,
        providers: Sequence[Provider],
        device: Device,
        options: int,
        updates: bool = True,
        shapes: Mapping[str, Lengths] | None = None,
    ) -> None:
        """Take a stage apart, in place, and load its parts.

        `options` is a number of threads; 0 leaves it to OpenVINO. Free `shapes` are None. The other
        arguments are `CompiledProgram`'s.
        """
        self.info = info
        model = stage.model
        inline(model)
        if shapes is not None:
            make_static(model, shapes)
        model.meta.pop(PREPARED_KEY, None)
        record_types(model)
        compute_random_in_32_bits(model)
        if shapes is not None:
            convolve_gradients(model)
            move_blocks(model)
            separate_factors(model)
        before, tensors, after = number_stages(model, info.names)
        self._stages: list[CompiledProgram] = []
        for part in (before, tensors, after):
            if part is None:
                continue
            inputs = {value.name for value in part.model.graph.inputs}
            outer = (name for name in stage.enters if name in inputs)
            whole = Stage(part.model, (*part.enters, *outer), part.leaves)
            own = {name: value for name, value in targets.items() if name in part.leaves}
            shared: dict[str, Any] = {"device": device, "updates": updates}
            if part is tensors:
                shared |= {"providers": providers, "options": options}
                loaded = _OpenVinoStage(whole, info, sets, own, **shared)
            else:
                shared |= {"providers": [CPU], "options": session_options(threads=1)}
                loaded = CompiledProgram(whole, info, sets, own, **shared)
            self._stages.append(loaded)

    def compute(self, current: int, feeds: Mapping[str, Any], values: dict[str, Any]) -> None:
        """See `Program`."""
        for stage in self._stages:
            stage.compute(current, feeds, values)


class OpenVinoProgram(Program):
    """A step whose tensors OpenVINO computes.

    It is compiled for the shapes of its feeds, since that is faster and OpenVINO takes no
    convolution with a kernel of free lengths. Once there were STATIC of them, what follows runs on
    one that is compiled for any shape, if OpenVINO takes it.
    """

    def __init__(
        self, stage: Stage, info: StepInfo, sets: Sequence[StateTensors], **options: Any
    ) -> None:
        """Keep a step; it is compiled when it is fed. The arguments are `OpenVinoStages`'s."""
        self.info = info
        self._stage, self._sets, self._options = stage, sets, options
        self._known: dict[tuple[tuple[str, Lengths], ...], OpenVinoStages] = {}
        self._open: OpenVinoStages | None = None
        self._takes_open = True

    def compute(self, current: int, feeds: Mapping[str, Any], values: dict[str, Any]) -> None:
        """See `Program`."""
        check_fed_integers(feeds)
        compiled = len(self._known), self._open
        self._stages({n: feed_shape(f) for n, f in feeds.items()}).compute(current, feeds, values)
        if compiled != (len(self._known), self._open):
            give_back()  # OpenVINO gives each input memory of its own, until one is bound

    def _stages(self, shapes: Mapping[str, Lengths]) -> OpenVinoStages:
        key = tuple(sorted(shapes.items()))
        if key in self._known:
            return self._known[key]
        if len(self._known) >= STATIC and self._takes_open:
            try:
                self._open = self._open or self._loaded(None)
            except RunError:
                self._takes_open = False
            else:
                return self._open
        self._known[key] = self._loaded(shapes)
        return self._known[key]

    def _loaded(self, shapes: Mapping[str, Lengths] | None) -> OpenVinoStages:
        stage = replace(self._stage, model=clone(self._stage.model))
        return OpenVinoStages(stage, self.info, self._sets, {}, shapes=shapes, **self._options)


def make_static(model: ir.Model, shapes: _Shapes) -> None:
    """Give inputs their shapes, in place."""
    for value in model.graph.inputs:
        shape = shapes.get(str(value.name))
        if shape is not None:
            value.shape = ir.Shape(shape)
    infer_in_place(model)
