"""Einsum written as MatMul, with Transpose and Reshape around it, where it is a matrix product.

jax2onnx writes every product as Einsum, of which few runtimes have a kernel in bfloat16. The
letters of two operands are those of both and of the result (batches), of both alone (summed up),
and of one and the result. Where operands have batches, there is one letter of each other kind; else
several of a kind are one axis, whose length has to be recorded.
"""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from amp_rewrite.graph.added import AddedNames

EINSUM = "Einsum"

_REST = "..."
"""In an equation: all axes that have no letter."""


def spell_einsums(model: ir.Model) -> int:
    """Write the Einsums of the main graph that are matrix products as such, in place.

    Returns:
        How many there were.
    """
    names, count = AddedNames.of(model.graph), 0
    for node in list(model.graph):
        terms = _terms(node)
        if terms is not None and _Spelling(node, names, *terms).write():
            count += 1
    return count


def _terms(node: ir.Node) -> tuple[str, str, str] | None:
    """Return the letters of two operands and of the result; None for any other node."""
    if (node.domain, node.op_type) != ("", EINSUM) or len(node.inputs) != 2:
        return None
    if None in node.inputs:
        return None
    equation = node.attributes.get_string("equation", "") or ""
    left, arrow, result = equation.replace(" ", "").partition("->")
    first, comma, second = left.partition(",")
    if not (comma and first and second):
        return None
    if not arrow:
        letters = {*first, *second} - {"."}
        alone = sorted(c for c in letters if (first + second).count(c) == 1)
        result = "".join([_REST * (_REST in left), *alone])
    terms = _spelled_out(node, first, second, result)
    if terms is None:
        return None
    first, second, result = terms
    repeats = any(len(set(term)) < len(term) for term in (first, second, result))
    return None if repeats or not set(result) <= {*first, *second} else (first, second, result)


def _spelled_out(node: ir.Node, *terms: str) -> tuple[str, str, str] | None:
    """Return terms with a letter for each axis of an ellipsis; None if that is not possible.

    Of two operands one may have an ellipsis: what two of them have in common is broadcast.
    """
    first, second, result = terms
    if "." not in "".join(terms):
        return first, second, result
    operands = [k for k, term in enumerate((first, second)) if _REST in term]
    if len(operands) != 1 or _REST not in result:
        return None
    value = node.inputs[operands[0]]
    shape = None if value is None else value.shape
    if shape is None:
        return None
    rest = len(shape) - len(terms[operands[0]].replace(_REST, ""))
    free = [c for c in string.ascii_letters if c not in "".join(terms)]
    if not 0 <= rest <= len(free):
        return None
    spelled = [term.replace(_REST, "".join(free[:rest])) for term in terms]
    return None if "." in "".join(spelled) else (spelled[0], spelled[1], spelled[2])


@dataclass
class _Spelling:
    """One Einsum, and the letters of its operands and its result."""

    node: ir.Node
    names: AddedNames
    first: str
    second: str
    result: str

    def write(self) -> bool:
        """Write it as a product if it is one; tell whether it is."""
        both = [c for c in self.first if c in self.second]
        batch = [c for c in both if c in self.result]
        summed = [c for c in both if c not in self.result]
        rows = [c for c in self.first if c not in both]
        columns = [c for c in self.second if c not in both]
        kept = {*batch, *rows, *columns} == set(self.result)
        if not kept or not (rows and columns and summed):
            return False
        lengths = self._lengths()
        single = len(rows) == len(columns) == len(summed) == 1
        has_lengths = all(c in lengths for c in (*summed, *columns))
        if (batch and not single) or not (single or has_lengths):
            return False
        a, b = (v for v in self.node.inputs if v is not None)
        a = self._turned(a, self.first, [*batch, *rows, *summed])
        b = self._turned(b, self.second, [*batch, *summed, *columns])
        if not single:
            inside, across = (math.prod(lengths[c] for c in group) for group in (summed, columns))
            a = self._shaped(a, [0] * len(rows) + [inside]) if len(summed) > 1 else a
            is_joined = len(summed) > 1 or len(columns) > 1
            b = self._shaped(b, [inside, across]) if is_joined else b
        product = self._added("MatMul", [a, b])
        if len(columns) > 1:
            product = self._shaped(product, [0] * len(rows) + [lengths[c] for c in columns])
        _replace(
            self.node, self._turned(product, "".join([*batch, *rows, *columns]), [*self.result])
        )
        return True

    def _lengths(self) -> dict[str, int]:
        """Return the lengths of letters, as far as recorded shapes tell."""
        lengths: dict[str, int] = {}
        for value, term in zip(self.node.inputs, (self.first, self.second), strict=True):
            shape = None if value is None else value.shape
            for letter, length in zip(term, shape or (), strict=False):
                if isinstance(length, int):
                    lengths[letter] = max(length, lengths.get(letter, 0))
        return lengths

    def _turned(self, value: ir.Value, term: str, order: Sequence[str]) -> ir.Value:
        if list(term) == list(order):
            return value
        places = [term.index(letter) for letter in order]
        return self._added("Transpose", [value], [ir.AttrInt64s("perm", places)])

    def _shaped(self, value: ir.Value, lengths: Sequence[int]) -> ir.Value:
        tensor = ir.tensor(np.array(lengths, np.int64))
        shape = self._added("Constant", [], [ir.AttrTensor("value", tensor)], ir.DataType.INT64)
        return self._added("Reshape", [value, shape])

    def _added(
        self,
        op: str,
        inputs: Sequence[ir.Value],
        attributes: Sequence[ir.Attr] = (),
        dtype: ir.DataType | None = None,
    ) -> ir.Value:
        """Return what a new node in front of the Einsum makes."""
        name = self.names.part(self.node.outputs[0].name or EINSUM, op)
        type_ = self.node.outputs[0].type if dtype is None else ir.TensorType(dtype)
        added = ir.Node(
            "", op, inputs, attributes, outputs=[ir.Value(name=name, type=type_)], name=name
        )
        graph = self.node.graph
        if graph is not None:
            graph.insert_before(self.node, added)
        return added.outputs[0]


def _replace(node: ir.Node, value: ir.Value) -> None:
    """Let what reads a node's result read a value instead, which takes its place; remove it.

    The value has the name, the type and the shape that the result had: a graph output needs them.
    """
    old = node.outputs[0]
    value.type = old.type or value.type
    value.shape = value.shape if old.shape is None else old.shape
    ir.convenience.replace_all_uses_with(old, value, replace_graph_outputs=True)
    name, old.name = old.name, f"{old.name}:einsum"
    value.name = name
    if node.graph is not None:
        node.graph.remove(node, safe=True)
