"""Two optimizers in a few lines each, for tests and the benchmark: SGD and PyTorch's Adam."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.grad.builder import Builder
from amp_rewrite.grad.part import Part
from amp_rewrite.grad.training_graph import State, TrainingGraph, training_graph
from amp_rewrite.grad.walk import gradients

Updates = dict[str, ir.Value]
Rule = Callable[[TrainingGraph, Builder, ir.Value, ir.Value, State, ir.Value], Updates]


def sgd(
    graph: TrainingGraph, b: Builder, rate: ir.Value, step: ir.Value, var: State, grad: ir.Value
) -> Updates:
    """Return w - rate * g."""
    del graph, step
    return {var.name: b.op("Sub", var.value, b.op("Mul", grad, rate))}


def adam(
    graph: TrainingGraph, b: Builder, rate: ir.Value, step: ir.Value, var: State, grad: ir.Value
) -> Updates:
    """Return the update of PyTorch's Adam with its default parameters."""

    def c(value: float) -> ir.Value:
        return b.constant(np.float32(value))

    def corrected(beta: float) -> ir.Value:
        return b.op("Sub", c(1), b.op("Pow", c(beta), step))

    zeros = np.zeros(var.shape, np.float32)
    m, v = (graph.state(f"{var.name}/{slot}", zeros, "slot") for slot in ("Adam", "Adam_1"))
    new_m = b.op("Add", b.op("Mul", m.value, c(0.9)), b.op("Mul", grad, c(0.1)))
    square = b.op("Mul", b.op("Mul", grad, grad), c(0.001))
    new_v = b.op("Add", b.op("Mul", v.value, c(0.999)), square)
    root = b.op("Div", b.op("Sqrt", new_v), b.op("Sqrt", corrected(0.999)))
    change = b.op("Div", b.op("Mul", new_m, rate), b.op("Add", root, c(1e-8)))
    change = b.op("Div", change, corrected(0.9))
    return {m.name: new_m, v.name: new_v, var.name: b.op("Sub", var.value, change)}


def minimize(model: ir.Model, rule: Rule = adam, learning_rate: float = 1e-3) -> Any:
    """Return an object with the attributes of a TrainOp that minimizes "loss"."""
    graph = training_graph(model)
    loss = graph.value("loss")
    graph.turn_on_training_mode()
    variables = graph.variables(loss.value)
    seed = graph.builder.constant(np.float32(1))
    targets = [variable.value for variable in variables]
    found = gradients(graph.builder, {loss.value: seed}, targets, sparse=False)
    updates = dict(graph.statistics(loss.value))
    b = graph.scoped("update", Part.UPDATE)
    rate = graph.state("learning_rate", np.array(learning_rate, np.float32), "learning_rate").value
    following = b.op("Add", graph.global_step().value, b.constant(1))
    updates["global_step"] = following
    step = b.op("Cast", following, to=ir.DataType.FLOAT.value)
    for variable, gradient in zip(variables, found, strict=True):
        assert isinstance(gradient, ir.Value)
        updates.update(rule(graph, b, rate, step, variable, gradient))
    fetches = {"loss": loss.value}
    return SimpleNamespace(
        graph=graph, loss=loss, updates=updates, global_step="global_step", fetches=fetches
    )
