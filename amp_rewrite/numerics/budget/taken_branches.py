"""The branches that all batches take, in place of the If nodes that choose them.

In a branch the errors of weights are not measured, and each value needs a number of its own to be
measured by (roundings.py). Many models ask for a sampling rate, or for shapes, so that all batches
take the same branch: it is put into the graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import onnx_ir as ir

from amp_rewrite.errors import AmpError
from amp_rewrite.graph.added import AddedNames
from amp_rewrite.graph.clone import clone
from amp_rewrite.graph.traverse import graphs_in, remove_unused_nodes
from amp_rewrite.numerics.emulate.insert import Inserter
from amp_rewrite.numerics.inputs.batches import Feeds
from amp_rewrite.numerics.repaint.float32_session import Float32Session

_BRANCHES = ("else_branch", "then_branch")


def put_taken_branches(model: ir.Model, feeds: Sequence[Feeds]) -> None:
    """Put the branch that all batches take in place of each If, and of those inside it.

    Values keep their names. An If whose branch has names that stand elsewhere, too, is left alone,
    and so are all if the conditions cannot be computed for a batch.
    """
    while taken := _taken(model, feeds):
        insert = Inserter(model)
        for node, branch in taken.items():
            _put(model.graph, node, branch, insert)


def _taken(model: ir.Model, feeds: Sequence[Feeds]) -> dict[ir.Node, ir.Graph]:
    """Return the If nodes of the main graph that all batches decide alike -> their branch."""
    own = _choosing(model)
    if not own:
        return {}
    decide = _conditions_of(model)
    try:
        chosen = [decide.run(each) for each in feeds]
    except AmpError:  # unusual inputs need not fit
        return {}
    counts = Counter(name for graph in graphs_in(model.graph) for name in _names(graph))
    taken: dict[ir.Node, ir.Graph] = {}
    for node, name in zip(own, decide.outputs, strict=True):
        decided = {bool(each[name].item()) for each in chosen}
        branch = node.attributes[_BRANCHES[max(decided)]].as_graph()
        if len(decided) == 1 and all(counts[name] == 1 for name in _names(branch)):
            taken[node] = branch
    return taken


def _choosing(model: ir.Model) -> list[ir.Node]:
    """Return the If nodes of the main graph."""
    return [node for node in model.graph if node.op_type == "If" and not node.domain]


def _names(graph: ir.Graph) -> list[str]:
    """Return the names of the values that a graph defines."""
    made = (value for node in graph for value in node.outputs)
    defined = dict.fromkeys((*graph.inputs, *graph.initializers.values(), *made))
    return [value.name for value in defined if value.name]


def _conditions_of(model: ir.Model) -> Float32Session:
    """Return a session that computes the conditions of the If nodes of the main graph alone."""
    copy = clone(model)
    names = AddedNames.of(copy.graph)
    copy.graph.outputs.clear()
    for node in _choosing(copy):
        name = names.part(node.name or "", "condition")
        output = ir.Value(name=name, type=ir.TensorType(ir.DataType.BOOL))
        copied = ir.Node("", "Identity", [node.inputs[0]], outputs=[output], name=name)
        copy.graph.append(copied)
        copy.graph.outputs.append(output)
    remove_unused_nodes(copy.graph)
    return Float32Session(copy, "the model's conditions")


def _put(graph: ir.Graph, node: ir.Node, branch: ir.Graph, insert: Inserter) -> None:
    """Put a branch in place of a node of the main graph."""
    nodes, made = list(branch), list(branch.outputs)
    branch.outputs.clear()
    branch.remove(nodes)
    for name, value in list(branch.initializers.items()):
        del branch.initializers[name]
        graph.register_initializer(value)
    results = list[ir.Value]()
    for value, old in zip(made, node.outputs, strict=True):
        name = insert.names.part(old.name or "", "Identity")
        result = ir.Value(name=name, type=old.type or value.type)
        nodes.append(ir.Node("", "Identity", [value], outputs=[result], name=name))
        results.append(result)
    insert.replace_node(node, nodes, *results)
