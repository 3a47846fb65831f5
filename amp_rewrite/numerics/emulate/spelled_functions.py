"""Functions of one value that a model spells out in several operators of one element each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir

Users = Callable[[ir.Value], Sequence[ir.Node]]


def spelled_at(
    value: ir.Value,
    users: Users,
    is_constant: Callable[[ir.Value | None], bool],
    spelled: Mapping[tuple[str, ...], str],
) -> tuple[str, list[ir.Node]] | None:
    """Return the function of a value that its readers compute, and their nodes in order.

    The nodes read nothing but the value, each other and constants, and nothing else reads what is
    between them. `spelled` has operators in the order of the alphabet -> the function that they are
    together.
    """
    nodes: list[ir.Node] = []
    if len(users(value)) < 2:
        return None
    for _ in range(max(map(len, spelled), default=0)):
        reached = [value, *(node.outputs[0] for node in nodes)]
        fresh = [
            user
            for made in reached
            for user in users(made)
            if user not in nodes and all(v in reached or is_constant(v) for v in user.inputs)
        ]
        if not fresh:
            return None
        nodes.append(fresh[0])
        name = spelled.get(tuple(sorted(node.op_type for node in nodes)))
        inner = [value, *(node.outputs[0] for node in nodes[:-1])]
        if name is not None and all(user in nodes for made in inner for user in users(made)):
            return name, nodes
    return None
