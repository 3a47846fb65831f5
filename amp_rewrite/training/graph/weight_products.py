"""The products of a model one of whose factors is a matrix of weights, and what they are called."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from amp_rewrite.grad.builder.known import rank
from amp_rewrite.graph.step_part import part_of
from amp_rewrite.graph.traits import Trait, has, operator
from amp_rewrite.graph.traverse import graphs_in
from amp_rewrite.training.graph.training_graph import TrainingGraph

# operators: the products of two matrices.
_PRODUCTS = ("Gemm", "MatMul")

_TRANSPOSE = "Transpose"
_SEPARATORS = re.compile(r"[./]")


@dataclass(frozen=True, eq=False)
class WeightProduct:
    """A product whose second factor is a matrix of weights.

    There may be a Cast, an Identity or a Transpose between the two.

    Attributes:
        node: The product.
        weight: The initializer.
        output_first: Whether the first axis of the weight as it is stored belongs to the result,
            as in PyTorch's Linear; else the second one does.
    """

    node: ir.Node
    weight: ir.Value
    output_first: bool

    @property
    def names(self) -> tuple[str, ...]:
        """What a pattern may call it: names of weight and node, and the modules they lie in."""
        name = str(self.weight.name)
        names = [name, _module_of(name), self.node.name, _dotted(self.node.name), *self._of_node()]
        return tuple(dict.fromkeys(n for n in names if n))

    @property
    def module(self) -> str:
        """The module that the weight lies in by its name, else by its product's, else its name."""
        name = str(self.weight.name)
        return next((m for m in (_module_of(name), *self._of_node()) if m), name)

    def _of_node(self) -> list[str]:
        module = _module_of(self.node.name)
        return [] if module is None else [module]


def weight_products(graph: TrainingGraph) -> Iterator[WeightProduct]:
    """Yield the products with weights of the forward pass, those inside branches too."""
    for body in graphs_in(graph.model.graph):
        for node in body:
            if operator(node) in _PRODUCTS and part_of(node) is None:
                product = _product(graph, node)
                if product is not None:
                    yield product


def _product(graph: TrainingGraph, node: ir.Node) -> WeightProduct | None:
    """Return a node as a product with a weight; None if it is none."""
    weight, transposed = _source(node.inputs[1])
    if weight is None or not graph.is_weight(weight) or rank(weight) != 2:
        return None
    if node.attributes.get_int("transB", 0):
        transposed = not transposed
    return WeightProduct(node, weight, transposed)


def _source(factor: ir.Value | None) -> tuple[ir.Value | None, bool]:
    """Return what a factor is a copy of, and whether it is its transpose."""
    transposed = False
    while factor is not None and (node := factor.producer()) is not None and copies_factor(node):
        if operator(node) == _TRANSPOSE:
            order = node.attributes.get("perm")
            transposed ^= order is None or list(order.as_ints()) == [1, 0]
        factor = node.inputs[0]
    return factor, transposed


def copies_factor(node: ir.Node) -> bool:
    """Return whether a node copies, casts or transposes a matrix."""
    return operator(node) in (_TRANSPOSE, "Identity") or has(node, Trait.CASTS)


def _module_of(name: str | None) -> str | None:
    """Return the path of a name without its last part, with dots; None if it has one part."""
    dotted = _dotted(name)
    return dotted.rpartition(".")[0] or None


def _dotted(name: str | None) -> str:
    """Return a name as a path with dots."""
    return ".".join(part for part in _SEPARATORS.split(name or "") if part)
