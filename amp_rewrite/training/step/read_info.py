"""Read what a step model says about itself, and check it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import onnx_ir as ir

from amp_rewrite.errors import StepError
from amp_rewrite.graph.metadata_keys import STEP_KEY
from amp_rewrite.graph.step_metadata import check_description, step_description
from amp_rewrite.training.graph.adapter import Adapter
from amp_rewrite.training.step.info_checks import check_info
from amp_rewrite.training.step.step_info import StateInfo, StepInfo


def read_info(model: ir.Model, where: object = None) -> StepInfo:
    """Return the description of a step model.

    Raises:
        StepError: The model is not a step model, a later version wrote it, or what it says of
            itself cannot be, or is not so.
    """
    if STEP_KEY not in model.metadata_props:
        raise StepError(
            "not a training step",
            where=where,
            found=f"a model without metadata {STEP_KEY!r}",
            remedy="make a step with amp-rewrite train-step, or with build_step",
        )
    check_description(model, where, complete=True)
    content = step_description(model)
    del content["version"]
    info = _info(content)
    check_info(info, model.graph, where)
    return info


def _info(content: dict[str, Any]) -> StepInfo:
    states: list[dict[str, Any]] = content.pop("states")
    inputs: Iterable[str] = content.pop("inputs")
    for state in states:
        state["shape"] = tuple(state["shape"])
    adapters: list[dict[str, Any]] = content.pop("adapters", [])
    return StepInfo(
        states=tuple(StateInfo(**state) for state in states),
        adapters=tuple(Adapter.from_json(adapter) for adapter in adapters),
        loss_scales=tuple(content.pop("loss_scales", ())),
        inputs=tuple(inputs),
        **content,
    )
