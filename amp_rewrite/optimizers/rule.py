"""What an update rule is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from amp_rewrite.grad.builder import Builder
from amp_rewrite.grad.training_graph import State


@dataclass(frozen=True)
class Scalars:
    """What the updates of all variables of one element type share.

    Attributes:
        b: Adds the nodes.
        dtype: The type that updates are computed in: float32 or float64.
        rate: The learning rate of this step: shape (), `dtype`.
        others: The present states that belong to no variable, by name, in their own type.
    """

    b: Builder
    dtype: ir.DataType
    rate: ir.Value
    others: Mapping[str, ir.Value]


@dataclass(frozen=True)
class Number:
    """A variable, or the rows of it that a sparse gradient touches, in one step.

    Attributes:
        b: Adds the nodes.
        value: The present value: float32 or float64.
        gradient: Its gradient: same shape and type.
        variable: Which variable it is.
    """

    b: Builder
    value: ir.Value
    gradient: ir.Value
    variable: State
