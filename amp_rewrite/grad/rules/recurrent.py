"""LSTM, GRU and RNN: differentiated in unrolled form, or refused."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.builder.builder import Builder
from amp_rewrite.errors import GradientError
from amp_rewrite.grad.rule import Gradients, Rules
from amp_rewrite.grad.rules.arithmetic import Received
from amp_rewrite.grad.unroll import OPERATORS, obstacle
from amp_rewrite.graph.names import place


def refused(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """No formula: a node that can be unrolled was, before the walk (grad/unroll.py).

    Raises:
        GradientError: Always.
    """
    raise GradientError(
        "a recurrent operator can be differentiated in unrolled form only",
        where=place(node),
        found=obstacle(node),
        remedy="fix the sequence length of the model's input, and use activations without "
        "parameters: Sigmoid, Tanh, Relu, Softplus, Softsign",
    )


RULES: Rules = dict.fromkeys(sorted(OPERATORS), refused)
