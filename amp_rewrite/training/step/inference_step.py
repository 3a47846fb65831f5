"""A step as inference sees it: no dropout, running statistics, nothing updated."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from amp_rewrite.errors import FetchError
from amp_rewrite.graph.clone import clone
from amp_rewrite.graph.metadata_keys import PART_KEY
from amp_rewrite.graph.step_part import Part
from amp_rewrite.graph.traverse import ancestors
from amp_rewrite.training.graph.training_mode import normalise_by_running_statistics
from amp_rewrite.training.step.cut_step import cut_step, values_by_name
from amp_rewrite.training.step.dropout import remove_dropouts
from amp_rewrite.training.step.step_info import StepInfo


def inference_of(
    whole: ir.Model, info: StepInfo, fetches: Iterable[str]
) -> tuple[ir.Model, StepInfo]:
    """Return the part of a step that computes `fetches` in inference mode.

    The step has everything that can be fetched, and is not changed; `fetches` do not depend on
    gradients.

    Returns:
        A model without updates, whose states have to be fed, and its description.

    Raises:
        FetchError: A name is unknown, or is that of a gradient or of what is computed from one.
    """
    wanted = list(fetches)
    model = clone(whole)
    _check_forward(model, info, wanted)
    remove_dropouts(model)
    for node in list(model.graph):
        if node.op_type == "BatchNormalization" and node.domain == "":
            normalise_by_running_statistics(node)
    return model, cut_step(model, info, wanted, updates=False, defaults=False)


def _check_forward(model: ir.Model, info: StepInfo, fetches: Iterable[str]) -> None:
    """Refuse gradients: theirs are formulas of training, and inference computes other values."""
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
