"""Sums that are accumulated in the low type."""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from amp_rewrite.dtypes import DType
from amp_rewrite.emulate.insert import Inserter
from amp_rewrite.errors import OptionError

SUPPORTED: tuple[str, ...] = ()


def check_operators(operators: Collection[str]) -> None:
    """Refuse operators whose sums cannot be accumulated in the low type."""
    for name in operators:
        if name not in SUPPORTED:
            raise OptionError("accumulate_low", found=name)


def accumulates_low(node: ir.Node, operators: Collection[str]) -> bool:
    """Tell whether a node is one of the operators."""
    return node.domain == "" and node.op_type in operators


def lower_accumulation(node: ir.Node, dtype: DType, insert: Inserter) -> None:
    """Replace a node."""
