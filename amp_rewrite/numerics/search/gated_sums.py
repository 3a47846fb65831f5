"""Gates of nodes whose sums a target keeps in the low type.

Rounding the result of such a node is not enough: each partial sum is rounded. That takes a Loop
(emulate/low_sums.py), which is much slower than the operator, so that it stands in a branch of an
If and runs only where the gate is open.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from amp_rewrite import targets
from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.graph.added import AddedNames
from amp_rewrite.graph.ports import opset_of
from amp_rewrite.numerics.emulate.low_sums import Sums, accumulates_low, accumulation, kept_low


@dataclass(frozen=True)
class GatedSums:
    """Adds the gates to one model.

    Attributes:
        opsets: The opsets that the model imports.
        low: The low type.
        sums: How the target adds up in it.
        names: The names in use in the model.
    """

    opsets: dict[str, int]
    low: DType
    sums: Sums
    names: AddedNames

    @staticmethod
    def of(model: ir.Model, target: str, low: DType) -> GatedSums:
        """Look up how the kernels of a target add up."""
        opsets = model.graph.opset_imports
        sums = kept_low(targets.find(target), low, opsets.get("", 0))
        return GatedSums(opsets, low, sums, AddedNames.of(model.graph))

    def concern(self, node: ir.Node | None) -> bool:
        """Tell whether the target keeps the partial sums of a node in the low type."""
        return node is not None and accumulates_low(node, self.sums)

    def insert(self, node: ir.Node, graph: ir.Graph, gate: ir.Value) -> ir.Value:
        """Put an If behind a node; return what the target computes, or what the node does.

        Where `gate` is true it is what the target computes of rounded inputs.
        """
        value = node.outputs[0]
        opset = opset_of(node, self.opsets)
        sum_nodes, result = accumulation(node, self.low, opset, self.names, self.sums)
        branches = {
            "then_branch": (sum_nodes, result),
            "else_branch": self._unchanged_branch(value),
        }
        attributes = [
            ir.AttrGraph(key, ir.Graph([], [end], nodes=nodes, name=f"{value.name}/{key}"))
            for key, (nodes, end) in branches.items()
        ]
        chosen = self._value(value)
        graph.insert_after(node, ir.Node("", "If", [gate], attributes, outputs=[chosen]))
        return chosen

    def _unchanged_branch(self, value: ir.Value) -> tuple[list[ir.Node], ir.Value]:
        node = ir.Node("", "Identity", [value], outputs=[self._value(value)])
        return [node], node.outputs[0]

    def _value(self, like: ir.Value) -> ir.Value:
        name = self.names.inner(like.name or "", FLOAT32)
        return ir.Value(name=name, type=ir.TensorType(FLOAT32.ir), shape=like.shape)
