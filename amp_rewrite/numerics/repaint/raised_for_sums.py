"""A model at an opset at which the sums that a target keeps low can be emulated."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.dtypes import DType
from amp_rewrite.errors import GraphError, OptionError
from amp_rewrite.graph.io.convert_opset import convert_opset
from amp_rewrite.numerics.emulate.low_sums import OLDEST_OPSET, kept_low
from amp_rewrite.targets import Target


def raised_for_sums(model: ir.Model, target: Target, low: DType) -> ir.Model:
    """Return a model at an opset that will do: itself if it is new enough, or has no such sums.

    One that onnx's version converter cannot move stays as it is, too: its sums are float32.
    """
    if model.graph.opset_imports.get("", OLDEST_OPSET) >= OLDEST_OPSET or not kept_low(target, low):
        return model
    try:
        return convert_opset(model, OLDEST_OPSET)
    except (OptionError, GraphError):
        return model
