"""LSTM, GRU and RNN: differentiated as a function of plain operators, or refused."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.errors import GradientError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.recurrent.description import OPERATORS, Description
from amp_rewrite.grad.rule import Gradients, Rules
from amp_rewrite.grad.rules.arithmetic import Received
from amp_rewrite.graph.names import place


def refused(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """No formula: a node that can be spelled out was, before the walk (grad/recurrent).

    Raises:
        GradientError: Always.
    """
    raise GradientError(
        "a recurrent operator cannot be differentiated",
        where=place(node),
        found=Description(node).obstacle(),
        remedy="give it its hidden_size, and use the activations of the standard, with both "
        "activation_alpha and activation_beta for Affine and ScaledTanh",
    )


RULES: Rules = dict.fromkeys(sorted(OPERATORS), refused)
