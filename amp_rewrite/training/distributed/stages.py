"""Cut a step into stages: what is computed before each bucket of sums, and what follows them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx_ir as ir

from amp_rewrite.errors import InvariantError
from amp_rewrite.graph.traverse import ancestors, inputs_of
from amp_rewrite.training.distributed.buckets import Bucket
from amp_rewrite.training.graph.replicas import is_collective
from amp_rewrite.training.step.cut import declare_types
from amp_rewrite.training.step.stage import Stage, stage_of


def isolate(model: ir.Model) -> None:
    """Make sums independent of what is around them.

    Their inputs, which the sums overwrite, are read by nothing else and computed by a node of a
    stage: a sum of a sum gets a copy of it. Their outputs are none of the model.

    Args:
        model: A step; changed in place.
    """
    graph = model.graph
    for node in [n for n in graph if is_collective(n)]:
        _hide(graph, node.outputs[0])
        value = node.inputs[0]
        assert value is not None, "what is left of the domain has one input"
        if _is_free(value):
            continue
        copy = ir.node("Identity", [value], name=f"{node.name}/copy")
        new = copy.outputs[0]
        new.name, new.type, new.shape = f"{node.outputs[0].name}:own", value.type, value.shape
        graph.insert_before(node, copy)
        node.replace_input_with(0, new)


def _is_free(value: ir.Value) -> bool:
    """Return whether a stage computes a value for one node alone."""
    node = value.producer()
    if node is None or is_collective(node):
        return False
    return len(value.uses()) == 1 and not value.is_graph_output()


def _hide(graph: ir.Graph, value: ir.Value) -> None:
    """If a value is an output of the graph, let a copy of it be that."""
    if not value.is_graph_output():
        return
    copy = ir.node("Identity", [value], name=f"{value.name}/output")
    new, name = copy.outputs[0], value.name
    new.type, new.shape = value.type, value.shape
    value.name, new.name = f"{name}:sum", name
    graph.append(copy)
    graph.outputs[:] = [new if v is value else v for v in graph.outputs]


def stages_of(model: ir.Model, buckets: Sequence[Bucket]) -> list[Stage]:
    """Return a stage per bucket, which ends with the bucket's inputs, and the last one.

    Args:
        model: A step; `isolate` has been called, and types are known.
        buckets: Its sums.
    """
    values = [v for node in model.graph for v in node.outputs]
    declare_types(model, values)
    parts = _parts(model.graph, buckets)
    home = {v: number for number, part in enumerate(parts) for node in part for v in node.outputs}
    read = [{v for node in part for v in inputs_of(node)} for part in parts]
    sums = [node for bucket in buckets for node in bucket.nodes]
    always = {v for node in sums for v in (*node.inputs, *node.outputs)} | {*model.graph.outputs}
    stages: list[Stage] = []
    for number in range(len(parts)):
        wanted = always.union(*read[number + 1 :])
        enters = [v for v in values if v in read[number] and home.get(v) != number]
        leaves = [v for v in values if v in wanted and home.get(v) == number]
        stages.append(stage_of(model, enters, leaves))
    return stages


def _parts(graph: ir.Graph, buckets: Sequence[Bucket]) -> list[set[ir.Node]]:
    """Return the nodes of each stage: what a bucket needs that no bucket before it did."""
    left = {*graph}.difference(*(bucket.nodes for bucket in buckets))
    parts: list[set[ir.Node]] = []
    for bucket in buckets:
        wanted = [v for node in bucket.nodes for v in node.inputs if v is not None]
        parts.append(ancestors(wanted, within=left))
        left -= parts[-1]
    return [*parts, left]


def check_stages(
    stages: Sequence[Stage], buckets: Sequence[Bucket], fetched: Iterable[str]
) -> None:
    """Refuse stages of which one, or a sum, reads what has not been computed when it runs.

    Args:
        stages: One per bucket, which ends with the bucket's inputs, and the last one.
        buckets: The sums.
        fetched: The names of values that are fetched.

    Raises:
        InvariantError: A value is not there, which is a defect of this package.
    """
    known: set[str] = set()
    for index, stage in enumerate(stages):
        _check_known(f"stage {index}", stage.enters, known)
        known.update(stage.leaves)
        if index < len(buckets):
            _check_known(f"sum {index}", buckets[index].sources, set(stage.leaves))
            known.update(buckets[index].results)
    _check_known("fetches", fetched, known)


def _check_known(where: str, names: Iterable[str], known: set[str]) -> None:
    missing = sorted(set(names) - known)
    if missing:
        raise InvariantError(
            "a step on shards reads what nothing has computed before",
            where=where,
            found=", ".join(missing),
            expected="values of earlier stages, and sums",
            remedy="report this as a defect of amp_rewrite",
        )
