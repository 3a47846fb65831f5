"""The compiled forms of a step, one for each set of fetches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import onnx_ir as ir

from amp_rewrite.dtypes import BFLOAT16, LOW
from amp_rewrite.errors import FetchError
from amp_rewrite.graph.clone import clone
from amp_rewrite.graph.metadata_keys import PART_KEY
from amp_rewrite.graph.step_part import Part
from amp_rewrite.graph.traverse import ancestors
from amp_rewrite.numerics.emulate.low_sums import Sums, kept_low
from amp_rewrite.numerics.emulate.model import emulate_typed
from amp_rewrite.numerics.emulate.typed_model import TypedModel
from amp_rewrite.runtimes.ort.device import Device
from amp_rewrite.runtimes.session import Provider, name_and_options
from amp_rewrite.targets import CPU, Target
from amp_rewrite.training.graph.replicas import Sharding, resolve
from amp_rewrite.training.graph.training_mode import turn_off_training_mode
from amp_rewrite.training.session.compiled_program import (
    CompiledProgram,
    OpenVinoProgram,
    Program,
    StateTensors,
    is_openvino,
)
from amp_rewrite.training.step.batch_norm import spell_out_batch_norms
from amp_rewrite.training.step.blocked_convolutions import block_convolutions
from amp_rewrite.training.step.cut_step import Stage, cut_step, values_by_name
from amp_rewrite.training.step.dropout import remove_dropouts
from amp_rewrite.training.step.step import Step
from amp_rewrite.training.step.step_info import StepInfo


class ProgramCache:
    """Compiles what one run of a step asks for, once."""

    def __init__(
        self,
        step: Step,
        sets: Sequence[StateTensors],
        *,
        options: Any,
        providers: Sequence[Provider],
        device: Device,
        target: Target,
        emulate: bool,
        sharding: Sharding | None = None,
    ) -> None:
        """Keep what programs are made from; for OpenVINO `options` is a number of threads."""
        self._sharding = sharding
        self._step, self._sets = step, sets
        self._apart = is_openvino(providers)
        self._lowers = self._apart or not device.is_host
        # The CPU provider has few kernels for bfloat16.
        self._emulate = emulate or (not self._lowers and step.info.precision == BFLOAT16.name)
        self._target = target
        self._where: dict[str, Any] = {"options": options, "device": device}
        self._where["providers"] = list(providers)
        self._known: dict[tuple[Any, ...], Program] = {}

    def get(
        self,
        names: tuple[str, ...],
        *,
        updates: bool,
        applies: bool | None = None,
        averaged: bool = False,
    ) -> Program:
        """Return the program that fetches values.

        It computes the next states if `updates`, else what inference does. `applies` says whether
        gradients that it accumulates are applied; None leaves that to the step. If `averaged`, it
        reads the averages of variables in their place.
        """
        key = updates, applies, averaged, names
        if key not in self._known:
            if updates:
                always = () if self._sharding is None else self._sharding.always
                cut = self._step.cut((*names, *always), defaults=False, applies=applies)
                model, info = cut[0], replace(cut[1], fetches={n: cut[1].fetches[n] for n in names})
            else:
                model, info = inference_of(self._step.model, self._step.info, names)
                resolve(model)
            if self._lowers:
                spell_out_batch_norms(model)
            if self._emulate:
                emulate_typed(TypedModel(model), accumulate_low=self.sums)
            averages = (self._step.info.averages or {}) if averaged else {}
            sets = [{**own, **{n: own[a] for n, a in averages.items()}} for own in self._sets]
            self._known[key] = self._compiled(model, info, sets, updates=updates)
        return self._known[key]

    @property
    def sums(self) -> Sums:
        """How the target adds up in the step's precision."""
        low = LOW.get(self._step.info.precision)
        opset = self._step.model.graph.opset_imports.get("", 0)
        return {} if low is None else kept_low(self._target, low, opset)

    def _compiled(
        self, model: ir.Model, info: StepInfo, sets: Sequence[StateTensors], *, updates: bool
    ) -> Program:
        sharding = self._sharding if updates else None
        first = name_and_options(self._where["providers"][0])[0]
        plain = sharding is None and self._step.info.precision == "float32"
        if plain and first == CPU:  # stages of shards hand on values of known types only
            block_convolutions(model)
        alone = OpenVinoProgram if self._apart else CompiledProgram
        program = alone if sharding is None else sharding.program
        leaves = tuple(str(value.name) for value in model.graph.outputs)
        return program(Stage(model, (), leaves), info, sets, updates=updates, **self._where)

    def clear(self) -> None:
        """Release the runtime's sessions."""
        self._known.clear()


def inference_of(
    whole: ir.Model, info: StepInfo, fetches: Sequence[str]
) -> tuple[ir.Model, StepInfo]:
    """Return the part of a step that computes `fetches` in inference mode, and its description.

    Gradients are refused: they are formulas of training, and inference computes other values.
    """
    model = clone(whole)
    values = values_by_name(model.graph)
    for name in fetches:
        value = values.get(info.fetches.get(name, name))
        nodes = set() if value is None else ancestors([value])
        if any(node.metadata_props.get(PART_KEY) == Part.GRADIENT for node in nodes):
            raise FetchError(
                "a gradient is not a value of the forward pass",
                where=name,
                remedy="fetch it in a step, with run",
            )
    remove_dropouts(model)
    turn_off_training_mode(model)
    return model, cut_step(model, info, fetches, updates=False, defaults=False)
