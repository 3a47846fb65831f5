"""Stages of a step on the engine that a session was told to use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import onnx_ir as ir

from amp_rewrite.errors import OptionError, RunError
from amp_rewrite.grad.prepare import record_types
from amp_rewrite.graph.clone import clone
from amp_rewrite.graph.io.functions import inline
from amp_rewrite.graph.metadata_keys import PREPARED_KEY
from amp_rewrite.graph.proto.infer_in_place import infer_in_place
from amp_rewrite.runtimes.engines import give_back, open_session
from amp_rewrite.runtimes.ort.device import Device
from amp_rewrite.runtimes.ort.ort_values import shared_array, to_ort_value
from amp_rewrite.runtimes.ort.providers import check_form
from amp_rewrite.runtimes.ort.sessions import session_options
from amp_rewrite.runtimes.session import Provider, name_and_options
from amp_rewrite.targets import CPU, OPENVINO, provider_named
from amp_rewrite.training.session.compiled_program import (
    WHAT,
    CompiledProgram,
    Program,
    StateTensors,
)
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
