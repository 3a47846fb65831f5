# ruff: noqa: E501 a row is a line: the sentence, the program, what it gives
# Rows pass what users pass by mistake:
# pyright: reportArgumentType=false, reportAbstractUsage=false, reportAttributeAccessIssue=false
"""What TensorFlow and Keras document of the APIs that this package succeeds, one sentence a row.

Each row has the page, the sentence in our words, and a small program that shows it here: what a
call gives, or how it is refused. `docs/training.md` has a table of what differs, and why.
"""

from __future__ import annotations

import copy
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tensorflow_model import FEEDS, INF, G, loss_of, states
from twin import Twin

import amp_rewrite as amp
from amp_rewrite import optimizers as opt
from amp_rewrite.distributed import Shards, shard_context
from amp_rewrite.errors import AmpError, AmpWarning
from amp_rewrite.optimizers import GradientDescent, IndexedSlices, Momentum, Optimizer
from amp_rewrite.training.global_state import global_state
from amp_rewrite.training.loss_scaling.loss_scale import LossScale

_DOCS = "https://www.tensorflow.org/versions/r2.3/api_docs/python/tf/"
OPTIMIZER = _DOCS + "compat/v1/train/Optimizer"
CHILDREN = _DOCS + "compat/v1/train/AdamOptimizer"
KERAS = _DOCS + "keras/optimizers/Optimizer"
SCALER = _DOCS + "keras/mixed_precision/experimental/LossScaleOptimizer"
SCALE = _DOCS + "mixed_precision/experimental/LossScale"
FIXED = _DOCS + "mixed_precision/experimental/FixedLossScale"
DYNAMIC = _DOCS + "mixed_precision/experimental/DynamicLossScale"
ENABLE = _DOCS + "compat/v1/train/experimental/enable_mixed_precision_graph_rewrite"
DISABLE = _DOCS + "compat/v1/train/experimental/disable_mixed_precision_graph_rewrite"
POLICY = _DOCS + "keras/mixed_precision/experimental/Policy"
SHARD = _DOCS + "compat/v1/tpu/CrossShardOptimizer"

W = np.array([1.0, 2.0], np.float32)
TABLE = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
NAN = {**FEEDS, "h": np.array([[0, np.nan], [0, 0], [0, 0]], np.float32)}
BOTH = {**FEEDS, "g": np.array([np.inf, -np.inf], np.float32)}


@dataclass(frozen=True)
class Row:
    """One documented sentence.

    Attributes:
        page: Where it stands.
        sentence: What it says, in our words; the name of the test.
        call: The program that shows it.
        expected: What the program gives, or the error that it raises.
        text: A pattern that the error's text has, or "".
    """

    page: str
    sentence: str
    call: Callable[[], Any]
    expected: Any = True
    text: str = ""


def pairs_of(optimizer: Optimizer | None = None, **options: Any) -> list[Any]:
    return (optimizer or GradientDescent(1.0)).compute_gradients(loss_of(), **options)


def names_of(pairs: list[Any]) -> list[str]:
    return [variable.name for _, variable in pairs]


def fetched(op: Any, *names: str, feeds: Any = FEEDS) -> list[Any]:
    with amp.TrainingSession(op) as session:
        found = session.run(feeds, names)
    return [found[name].tolist() for name in names]


def trained(optimizer: Optimizer, **options: Any) -> dict[str, np.ndarray]:
    return states(optimizer.minimize(loss_of(), **options))


def w_after(
    optimizer: Optimizer, feeds: Any = FEEDS, steps: int = 1, **options: Any
) -> list[float]:
    return states(optimizer.minimize(loss_of(), **options), feeds, steps)["w"].tolist()


def table_after(optimizer: Optimizer, feeds: Any = FEEDS) -> list[Any]:
    return states(optimizer.minimize(loss_of()), feeds)["table"].tolist()


def built(optimizer: Optimizer, **options: Any) -> Any:
    optimizer.minimize(loss_of(), **options)
    return optimizer


def updated(op: Any) -> list[str]:
    return sorted(name for name in op.updates if op.graph.states[name].trainable)


def applied(pairs: Any, **options: Any) -> Any:
    return GradientDescent(1.0).apply_gradients(pairs, **options)


SGD_W = [-2.0, 6.0]
"""w after a step of gradient descent with rate 1."""
SGD_TABLE = [[0.5, 1.5], [3.0, 4.0], [4.0, 5.0]]
"""The same of the table, whose row 2 is read twice."""


def raw(dense: amp.GraphValue) -> Any:
    graph = dense.graph
    b = graph.builder
    values, shape = b.unsqueeze(dense.value, [0]), b.constant(np.array([3, 2]))
    indices = b.constant(np.array([1]))
    fields = (amp.GraphValue(graph, v) for v in (values, indices, shape))
    return IndexedSlices(*fields)  # type: ignore[arg-type]


def of_slices() -> list[Any]:
    (gradient, _), *_ = pairs_of(var_list=["w"])
    return states(applied([(raw(gradient), gradient.graph.variable("table"))]))["table"].tolist()


def with_none() -> list[str]:
    pairs = pairs_of(var_list=["w", "unused"])
    assert pairs[1][0] is None
    return updated(applied(pairs))


def slots_once() -> bool:
    optimizer = opt.Adam()
    loss = loss_of()
    optimizer.minimize(loss)
    first = optimizer.get_slot("w", "m")
    optimizer.minimize(loss)
    return first is optimizer.get_slot("w", "m")


def node_names(**options: Any) -> bool:
    op = GradientDescent(1.0, name="mine").minimize(loss_of(), **options)
    scope = options.get("name", "mine")
    return any(str(node.name).startswith(f"{scope}/") for node in op.graph.model.graph)


def counted(**options: Any) -> int:
    loss = loss_of()
    if options.get("global_step") == "value":
        options["global_step"] = loss.graph.value("counter")
    op = GradientDescent(1.0).minimize(loss, **options)
    return int(states(op, steps=3)[op.global_step or ""])


def gate(number: int) -> list[float]:
    return w_after(GradientDescent(1.0), gate_gradients=number)


def seeded(factor: float, optimizer: Optimizer | None = None) -> list[float]:
    loss = loss_of()
    op = (optimizer or GradientDescent(1.0)).minimize(
        loss, grad_loss=loss * 0.0 + factor, var_list="w"
    )
    return states(op)["w"].tolist()


def vector_loss() -> list[float]:
    """The sum of (w g)^2 has the gradient 2 w g^2."""
    return states(GradientDescent(1.0).minimize(loss_of("vector")), FEEDS)["w"].tolist()


def of_value(name: str) -> list[float]:
    loss = loss_of()
    [(gradient, _)] = GradientDescent().compute_gradients(loss, [loss.graph.value(name)])
    op = GradientDescent(1.0).minimize(loss)
    return fetched(op, gradient.name)[0]


def two_models() -> list[str]:
    optimizer = Momentum(1.0, 0.5)
    optimizer.minimize(loss_of(), var_list="w")
    optimizer.minimize(loss_of(), var_list="table")
    return [state.name for state in optimizer.variables()]


of_optimizer = partial(Row, OPTIMIZER)
OPTIMIZER_ROWS = [
    of_optimizer("the name must not be empty", lambda: Optimizer(False, ""), ValueError, "Must specify the opt"),
    of_optimizer("get_name returns the name", lambda: Optimizer(False, "mine").get_name(), "mine"),
    of_optimizer("use_locking is an argument", lambda: GradientDescent(0.1, True).use_locking),
    of_optimizer("GATE_GRAPH is 2", lambda: Optimizer.GATE_GRAPH, 2),
    of_optimizer("minimize is compute_gradients, then apply_gradients", lambda: w_after(GradientDescent(1.0)) == states(applied(pairs_of()))["w"].tolist()),
    of_optimizer("minimize updates the variables", lambda: w_after(GradientDescent(1.0)), SGD_W),
    of_optimizer("minimize trains what the loss depends on", lambda: updated(GradientDescent().minimize(loss_of())), ["table", "w"]),
    of_optimizer("minimize takes var_list", lambda: updated(GradientDescent().minimize(loss_of(), var_list=["w"])), ["w"]),
    of_optimizer("var_list may be one variable", lambda: updated(GradientDescent().minimize(loss_of(), var_list="table")), ["table"]),
    of_optimizer("var_list is flattened", lambda: updated(GradientDescent().minimize(loss_of(), var_list=["w", ["table"]])), ["table", "w"]),
    of_optimizer("var_list may be a mapping", lambda: names_of(pairs_of(var_list={"b": "w", "a": "table"})), ["table", "w"]),
    of_optimizer("minimize refuses a loss without gradients", lambda: GradientDescent().minimize(loss_of("rounded")), ValueError, "No gradients provided for any variable"),
    of_optimizer("that error names the loss", lambda: GradientDescent().minimize(loss_of("rounded")), ValueError, "loss 'rounded'"),
    of_optimizer("minimize increments global_step", lambda: counted(global_step="value"), 43),
    of_optimizer("a global step that the model lacks is refused", lambda: counted(global_step="conter"), ValueError, "no counter of this name; expected 'counter'"),
    of_optimizer("a global step must be an integer", lambda: GradientDescent().minimize(loss_of(), global_step="w"), ValueError, "Invalid type float32"),
    of_optimizer("a global step must be a variable", lambda: GradientDescent().minimize(loss_of(), global_step=3), TypeError, "must be a state"),
    of_optimizer("minimize names its nodes by name", lambda: node_names(name="train")),
    of_optimizer("minimize takes grad_loss", lambda: seeded(0.5), [-0.5, 4.0]),
    of_optimizer("gate_gradients may be GATE_GRAPH", lambda: gate(2), SGD_W),
    of_optimizer("gate_gradients may be nothing else", lambda: gate(3), ValueError, "gate_gradients must be one of.*Not 3"),
    *(of_optimizer(f"aggregation_method may be {m}", lambda m=m: w_after(GradientDescent(1.0), aggregation_method=m), SGD_W) for m in (None, 0, 1, 2)),
    of_optimizer("aggregation_method may be nothing else", lambda: pairs_of(aggregation_method=7), ValueError, "Invalid aggregation_method specified 7"),
    of_optimizer("colocate_gradients_with_ops is an argument", lambda: w_after(GradientDescent(1.0), colocate_gradients_with_ops=True), SGD_W),
    of_optimizer("compute_gradients returns (gradient, variable) pairs", lambda: names_of(pairs_of()), ["w", "table"]),
    of_optimizer("a gradient may be IndexedSlices", lambda: isinstance(pairs_of()[1][0], IndexedSlices)),
    of_optimizer("a gradient may be None", lambda: pairs_of(var_list=["unused"])[0][0], None),
    of_optimizer("a variable that is given twice has one gradient", lambda: names_of(pairs_of(var_list=["w", "w"])), ["w"]),
    of_optimizer("the loss may be a callable", lambda: names_of(GradientDescent().compute_gradients(loss_of)), ["w", "table"]),
    of_optimizer("the loss of a callable must be a value", lambda: GradientDescent().compute_gradients(lambda: 3), TypeError, "must be a value"),
    of_optimizer("the loss must be a value", lambda: GradientDescent().compute_gradients(3.0), TypeError, "must be a value of a model"),
    of_optimizer("a loss of integers is refused by its type", lambda: GradientDescent().compute_gradients(loss_of("whole")), ValueError, "Invalid type int64 for loss 'whole'"),
    of_optimizer("a variable of integers is refused by its type", lambda: pairs_of(var_list=["axes"]), ValueError, "Invalid type int64 for variable 'axes'"),
    of_optimizer("an empty var_list is refused", lambda: pairs_of(var_list=[]), ValueError, "No variables to optimize"),
    of_optimizer("an entry that is no variable is refused", lambda: pairs_of(var_list=[3]), TypeError, "not a variable"),
    of_optimizer("a variable of another model is refused", lambda: pairs_of(var_list=[loss_of().graph.variable("w")]), AmpError, "of this model"),
    of_optimizer("grad_loss replaces the ones at the loss", lambda: seeded(2.0), [-5.0, 10.0]),
    of_optimizer("grad_loss must be a value", lambda: pairs_of(grad_loss=1.0), TypeError, "grad_loss must be a value"),
    of_optimizer("a loss that is no scalar is summed", vector_loss, [1 - 2 * 9.0, 2 - 4 * 16.0]),
    of_optimizer("there are gradients of values on the way", lambda: of_value("p"), [1.0, 1.0]),
    of_optimizer("there are gradients of inputs", lambda: of_value("g"), [1.0, 2.0]),
    of_optimizer("apply_gradients returns the step", lambda: states(applied(pairs_of()))["w"].tolist(), SGD_W),
    of_optimizer("apply_gradients takes a generator", lambda: updated(applied(p for p in pairs_of())), ["table", "w"]),
    of_optimizer("apply_gradients refuses no pairs", lambda: applied([]), ValueError, "No variables provided"),
    of_optimizer("apply_gradients refuses Nones alone", lambda: applied(pairs_of(var_list=["unused"])), ValueError, "No gradients provided for any variable: .*unused"),
    of_optimizer("a gradient of None leaves its variable alone", with_none, ["w"]),
    of_optimizer("a gradient of another kind is refused", lambda: applied([(3.0, loss_of().graph.variable("w"))]), TypeError, "must be a value, IndexedSlices or None"),
    of_optimizer("what is no pair is refused", lambda: applied([3]), TypeError, "not a .gradient, variable. pair"),
    of_optimizer("what is no iterable is refused", lambda: applied(3), TypeError, "must come in a list"),
    of_optimizer("what is no variable is refused", lambda: applied([(pairs_of()[0][0], 3)]), TypeError, "not a variable"),
    of_optimizer("a value cannot be updated", lambda: applied([(pairs_of()[0][0], "p")]), NotImplementedError, "Trying to update a Tensor"),
    of_optimizer("a gradient of another shape is refused", lambda: applied([(pairs_of()[0][0], "table")]), ValueError, "another shape than its variable"),
    of_optimizer("apply_gradients increments global_step after the updates", lambda: int(states(applied(pairs_of(), global_step="global_step"))["global_step"]), 1),
    of_optimizer("apply_gradients takes a name", lambda: applied(pairs_of(), name="train").global_step, "global_step"),
    of_optimizer("IndexedSlices of the user's own are applied", of_slices, [[1.0, 2.0], [0.0, 8.0], [5.0, 6.0]]),
    of_optimizer("values of equal indices are summed", lambda: table_after(GradientDescent(1.0)), SGD_TABLE),
    of_optimizer("rows that were not read stay", lambda: table_after(GradientDescent(1.0))[1], [3.0, 4.0]),
    of_optimizer("equal indices are summed before they are squared", lambda: np.round(table_after(opt.Adagrad(1.0, 0.0, epsilon=1e-12)), 4).tolist(), [[0.0, 1.0], [3.0, 4.0], [4.0, 5.0]]),
    of_optimizer("get_slot returns a slot", lambda: built(Momentum(1.0, 0.5)).get_slot("w", "momentum").name, "w/Momentum"),
    of_optimizer("get_slot returns None for a slot that is not there", lambda: built(Momentum(1.0, 0.5)).get_slot("w", "velocity"), None),
    of_optimizer("get_slot returns None for a variable without", lambda: built(Momentum(1.0, 0.5), var_list="w").get_slot("table", "momentum"), None),
    of_optimizer("get_slot_names are sorted", lambda: built(opt.Adam()).get_slot_names(), ["m", "v"]),
    of_optimizer("momentum has a slot", lambda: built(Momentum(1.0, 0.5)).get_slot_names(), ["momentum"]),
    of_optimizer("Adadelta has two slots", lambda: built(opt.Adadelta()).get_slot_names(), ["accum", "accum_update"]),
    of_optimizer("centered RMSProp has three slots", lambda: built(opt.RMSProp(centered=True)).get_slot_names(), ["mg", "momentum", "rms"]),
    of_optimizer("a slot is named after variable and optimizer", lambda: built(opt.Adam(), var_list="w").get_slot("w", "m").name, "w/Adam"),
    of_optimizer("a second slot has a number", lambda: built(opt.Adam(), var_list="w").get_slot("w", "v").name, "w/Adam_1"),
    of_optimizer("slots are made once", slots_once),
    of_optimizer("slots begin with zeros", lambda: built(opt.Adam()).get_slot("table", "m").read().tolist(), np.zeros((3, 2)).tolist()),
    of_optimizer("Adagrad's slot begins with a number", lambda: float(built(opt.Adagrad()).get_slot("w", "accumulator").read()[0]), pytest.approx(0.1)),
    of_optimizer("variables are those of the optimizer", lambda: [s.name for s in built(Momentum(1.0, 0.5)).variables()], ["table/Momentum", "w/Momentum"]),
    of_optimizer("variables are sorted by name, those of no slot among them", lambda: [s.name for s in built(opt.Adam(), var_list="w").variables()], ["beta1_power", "beta2_power", "w/Adam", "w/Adam_1"]),
    of_optimizer("variables are those of the graph built on last", two_models, ["table/Momentum"]),
    of_optimizer("a child without an update rule cannot apply", lambda: w_after(Optimizer(False, "plain")), NotImplementedError, "does not say how it updates"),
]  # fmt: skip


def adam_formula() -> bool:
    found = states(opt.Adam(0.1).minimize(loss_of()), FEEDS, 3)["w"]
    w, m, v = W.astype(float), np.zeros(2), np.zeros(2)
    for t in (1, 2, 3):
        m, v = 0.9 * m + 0.1 * G, 0.999 * v + 0.001 * G.astype(float) ** 2
        w = w - 0.1 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * m / (np.sqrt(v) + 1e-8)
    return bool(np.allclose(found, w, rtol=1e-5))


def moved_row(**options: Any) -> list[float]:
    """Return row 0 after a step that reads it and one that does not, less the first change."""
    op = opt.Adam(0.1, **options).minimize(loss_of())
    with amp.TrainingSession(op) as session:
        session.run(FEEDS)
        before = session.state_dict()["table"][0]
        session.run({**FEEDS, "ids": np.array([1, 1, 1])})
        return (session.state_dict()["table"][0] - before + TABLE[0]).tolist()


def defaults(kind: Any, *names: str) -> list[Any]:
    return [getattr(kind(), name) for name in names]


def rate_set(value: Any) -> list[float]:
    optimizer = GradientDescent(1.0)
    with amp.TrainingSession(optimizer.minimize(loss_of())) as session:
        optimizer.learning_rate = value
        session.run(FEEDS)
        return session.state_dict()["w"].tolist()


of_child = partial(Row, CHILDREN)
CHILD_ROWS = [
    *(of_child(f"{name}Optimizer is a name of version 1", lambda n=name: issubclass(getattr(opt, f"{n}Optimizer"), Optimizer)) for name in ("GradientDescent", "Momentum", "Adagrad", "Adadelta", "RMSProp", "Adam")),
    of_child("Adam's formula is that of the page", adam_formula),
    of_child("Adam's default epsilon is 1e-8", lambda: opt.Adam().epsilon, 1e-8),
    of_child("Adam's positional arguments are rate, betas and epsilon", lambda: opt.Adam(0.5, 0.4, 0.3, 0.2).get_config()["beta2"], 0.3),
    of_child("Adam's sparse update moves rows that were read before", lambda: moved_row() != [1.0, 2.0]),
    of_child("lazy Adam's does not", lambda: moved_row(lazy=True), [1.0, 2.0]),
    of_child("Momentum adds the gradient to the velocity", lambda: w_after(Momentum(1.0, 0.5), steps=2), [1 - 3 - 4.5, 2 + 4 + 6.0]),
    of_child("Nesterov's momentum looks ahead", lambda: w_after(Momentum(1.0, 0.5, True)), [1 - 4.5, 2 + 6.0]),
    of_child("a beta of 1 is refused", lambda: opt.Adam(beta1=1.0), ValueError, "impossible beta1"),
    of_child("a negative rate is refused", lambda: opt.Adam(-1.0), ValueError, "impossible learning_rate"),
    of_child("a rate is a number", lambda: opt.Adam("fast"), TypeError, "learning_rate"),
    of_child("the rate can be a schedule of the step", lambda: w_after(GradientDescent(opt.ExponentialDecay(1.0, 1, 0.5)), steps=2), [1 - 4.5, 2 + 6.0]),
]  # fmt: skip


def config_round_trip(optimizer: Optimizer) -> bool:
    return (
        type(optimizer).from_config(optimizer.get_config()).get_config() == optimizer.get_config()
    )


def weights_set() -> list[float]:
    optimizer = Momentum(1.0, 0.5)
    with amp.TrainingSession(optimizer.minimize(loss_of(), var_list="w")) as session:
        session.run(FEEDS)
        step, velocity = optimizer.get_weights()
        optimizer.set_weights([step + 5, velocity * 2])
        session.run(FEEDS)
        return [float(optimizer.get_weights()[0]), *optimizer.get_weights()[1].tolist()]


def own_iterations() -> int:
    loss = loss_of()
    optimizer = GradientDescent(1.0)
    optimizer.iterations = loss.graph.value("counter")
    return int(states(optimizer.minimize(loss))["counter"])


def constrained() -> list[float]:
    loss = loss_of()
    loss.graph.variable("w").constraint = lambda w: opt.clip_by_value(w, 0.0, 3.0)
    return states(GradientDescent(1.0).minimize(loss, var_list="w"))["w"].tolist()


def constrained_table() -> Any:
    loss = loss_of()
    loss.graph.variable("table").constraint = lambda w: w
    return GradientDescent(1.0).minimize(loss)


def set_after_building(name: str, value: Any) -> None:
    optimizer = built(Momentum(1.0, 0.5))
    setattr(optimizer, name, value)


def clipped(**limits: float) -> list[float]:
    return w_after(GradientDescent(1.0, **limits), var_list="w")


def weight_added() -> list[Any]:
    optimizer = GradientDescent()
    optimizer.compute_gradients(loss_of())
    weight = optimizer.add_weight("mine", (2,), np.float64, initializer="ones")
    return [weight.name, weight.dtype.name, weight.read().tolist(), weight in optimizer.variables()]


of_keras = partial(Row, KERAS)
KERAS_ROWS = [
    of_keras("iterations count the steps", lambda: int(states(built_op(opt.Adam()), steps=2)["global_step"]), 2),
    of_keras("iterations are a variable of the optimizer", lambda: built(opt.Adam()).iterations.name, "global_step"),
    of_keras("iterations can be set before there is a step", own_iterations, 41),
    of_keras("iterations cannot be set after it", lambda: setattr(built(opt.Adam()), "iterations", loss_of().graph.global_step()), ValueError, "Cannot set `iterations` to a new Variable"),
    of_keras("learning_rate can be read", lambda: opt.Adam(0.25).learning_rate, 0.25),
    of_keras("lr is the learning rate", lambda: opt.Adam(0.25).lr, 0.25),
    of_keras("learning_rate can be set while training", lambda: rate_set(0.5), [-0.5, 4.0]),
    of_keras("a rate that is set is checked", lambda: rate_set(-1.0), ValueError, "impossible learning_rate"),
    of_keras("weights begin with the iterations", lambda: [s.name for s in built(Momentum(1.0, 0.5), var_list="w").weights], ["global_step", "w/Momentum"]),
    of_keras("get_weights and set_weights are those of the running session", weights_set, [7.0, 6 * 0.5 + 3, -8 * 0.5 - 4.0]),
    of_keras("set_weights checks their shapes", lambda: built(Momentum(1.0, 0.5), var_list="w").set_weights([1, np.zeros(3)]), ValueError, "another shape"),
    of_keras("get_weights has an array for each", lambda: [a.shape for a in built(Momentum(1.0, 0.5), var_list="w").get_weights()], [(), (2,)]),
    of_keras("get_config makes an equal optimizer by from_config", lambda: all(map(config_round_trip, (opt.Adam(0.5, 0.1), Momentum(0.5, 0.25, True), opt.RMSProp(centered=True), opt.Adagrad(0.5))))),
    of_keras("get_config has a schedule's configuration", lambda: opt.Adam(opt.CosineSchedule(1.0, 10)).get_config()["learning_rate"]["class_name"], "CosineSchedule"),
    of_keras("from_config refuses unknown keys", lambda: opt.Adam.from_config({"beta3": 1}), TypeError, "unknown key 'beta3'|unknown argument"),
    of_keras("from_config leaves its argument as it is", lambda: unchanged({"learning_rate": 0.5})),
    of_keras("get_gradients refuses a variable without", lambda: opt.Adam().get_gradients(loss_of(), ["unused"]), ValueError, "a gradient is None"),
    of_keras("get_gradients clips by clipnorm", lambda: got_gradient(clipnorm=2.5), [1.5, -2.0]),
    of_keras("get_updates applies what get_gradients returns", lambda: states(GradientDescent(1.0).get_updates(loss_of(), ["w"])[0])["w"].tolist(), SGD_W),
    of_keras("clipnorm limits the norm of each gradient", lambda: clipped(clipnorm=2.5), [-0.5, 4.0]),
    of_keras("clipvalue limits each element", lambda: clipped(clipvalue=1.0), [0.0, 3.0]),
    of_keras("global_clipnorm limits the global norm", lambda: clipped(global_clipnorm=2.5), [-0.5, 4.0]),
    of_keras("only one of them can be given", lambda: opt.Adam(clipnorm=1.0, clipvalue=1.0), ValueError, "clips in one way"),
    of_keras("add_slot adds a slot", lambda: added_slot("ones"), [1.0, 1.0]),
    of_keras("add_slot refuses an unknown initializer", lambda: added_slot("noise"), ValueError, "unknown initializer"),
    of_keras("add_weight adds a weight", weight_added, ["mine", "DOUBLE", [1.0, 1.0], True]),
    of_keras("a constraint is applied after the update", constrained, [0.0, 3.0]),
    of_keras("a constraint refuses a sparse gradient", constrained_table, RuntimeError, "Cannot use a constraint function on a sparse variable"),
    of_keras("momentum that is set after the step is built is no silence", lambda: set_after_building("momentum", 0.9), ValueError, "momentum is part of the step"),
    of_keras("clipnorm that is set after the step is built is no silence", lambda: set_after_building("clipnorm", 0.9), ValueError, "clipnorm is part of the step"),
    *(of_keras(f"get({name!r}) denotes an optimizer", lambda n=name: isinstance(opt.get(n), Optimizer)) for name in ("sgd", "SGD", "adam", "Adam", "RMSprop", "adagrad", "Adadelta")),
    of_keras("get returns an optimizer as it is", lambda: opt.get(given := opt.Adam()) is given),
    of_keras("get refuses what denotes none", lambda: opt.get("adamant"), ValueError, "Could not interpret optimizer identifier"),
]  # fmt: skip


def built_op(optimizer: Optimizer) -> Any:
    return optimizer.minimize(loss_of())


def unchanged(config: dict[str, Any]) -> bool:
    before = copy.deepcopy(config)
    opt.Adam.from_config(config)
    return config == before


def got_gradient(**limits: float) -> list[float]:
    loss = loss_of()
    optimizer = GradientDescent(1.0, **limits)
    [gradient] = optimizer.get_gradients(loss, ["w"])
    return fetched(GradientDescent(1.0).minimize(loss), gradient.name)[0]


def added_slot(initializer: Any) -> list[float]:
    variable = loss_of().graph.variable("w")
    return GradientDescent().add_slot(variable, "average", initializer).read().tolist()


def scaler(scale: Any = 8.0, inner: Optimizer | None = None, **options: Any) -> Any:
    return amp.LossScaleOptimizer(inner or GradientDescent(1.0), scale, **options)


def dynamic(initial: float = 8.0, period: int = 2, multiplier: float = 2.0) -> amp.DynamicLossScale:
    return amp.DynamicLossScale(initial, period, multiplier)


def skipped(feeds: Any, mode: str = "if", inner: Optimizer | None = None) -> bool:
    """Return whether a step changes nothing but the loss scale, bit for bit."""
    op = scaler(dynamic(), inner or opt.Adam(0.1), conditional=mode).minimize(loss_of())
    with amp.TrainingSession(op) as session:
        session.run(FEEDS)
        before = session.state_dict()
        finite = session.run(feeds, "grads_finite")["grads_finite"]
        after = session.state_dict()
    kept = {n for n in before if before[n].tobytes() == after[n].tobytes()}
    changed = {n for n in before if n not in kept}
    return not finite and all(name.startswith("loss_scale/") for name in changed)


def scale_after(*feeds: Any, scale: Any = None) -> float:
    op = scaler(scale or dynamic()).minimize(loss_of())
    with amp.TrainingSession(op) as session:
        for given in feeds:
            session.run(given)
        return float(session.state_dict()["loss_scale/current_loss_scale"])


def scaled_loss(scale: Any, call: bool = False) -> list[float]:
    loss = loss_of()
    optimizer = scaler(scale)
    value = optimizer.get_scaled_loss(lambda: loss)() if call else optimizer.get_scaled_loss(loss)
    op = optimizer.minimize(loss)
    return fetched(op, value.name, "loss")


def scaled_type(kind: str) -> str:
    text = (
        "<ir_version: 8, opset_import: ['': 17]> g (KIND x) => (KIND loss) { loss = Identity(x) }"
    )
    proto = onnx.parser.parse_model(text.replace("'", '"').replace("KIND", kind))
    return scaler(dynamic()).get_scaled_loss(amp.value(amp.load(proto), "loss")).dtype.name


def unscaled() -> list[Any]:
    loss = loss_of()
    optimizer = scaler(8.0)
    pairs = GradientDescent().compute_gradients(loss, ["w", "unused", "table"])
    found = optimizer.get_unscaled_gradients([gradient for gradient, _ in pairs])
    op = GradientDescent(1.0).minimize(loss)
    values = fetched(op, found[0].name, found[2].values.name)
    return [values[0], found[1], values[1][0]]


def by_hand() -> list[float]:
    """The steps that the page spells out: scale, differentiate, unscale, apply."""
    loss, optimizer = loss_of(), scaler(dynamic())
    scaled = optimizer.get_scaled_loss(loss)
    pairs = GradientDescent().compute_gradients(scaled)
    gradients = optimizer.get_unscaled_gradients([gradient for gradient, _ in pairs])
    op = optimizer.apply_gradients(zip(gradients, [v for _, v in pairs], strict=True))
    return states(op)["w"].tolist()


def restored(first: bool) -> bool:
    """Return whether a checkpoint with, or without, a loss scale restores in the other step."""
    plain, wrapped = (
        opt.Adam(0.1).minimize(loss_of()),
        scaler(dynamic(), opt.Adam(0.1)).minimize(loss_of()),
    )
    one, other = (wrapped, plain) if first else (plain, wrapped)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "c.safetensors"
        with amp.TrainingSession(one) as session:
            session.run(FEEDS)
            session.save(path)
            expected = session.state_dict()["w/Adam"]
        with amp.TrainingSession(other) as session, warnings.catch_warnings():
            warnings.simplefilter("ignore", AmpWarning)
            session.restore(path)
            return bool((session.state_dict()["w/Adam"] == expected).all())


class Halved(GradientDescent):
    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: Any = None, **options: Any
    ) -> Any:
        halved = [(g * 0.5, v) for g, v in grads_and_vars]
        return super().apply_gradients(halved, global_step, name, **options)


def grouped(feeds: Any) -> list[Any]:
    """Return both variables after a step of two optimizers with one loss scale."""
    loss, scale = loss_of(), dynamic()
    ops = [scaler(scale).minimize(loss, var_list=name) for name in ("w", "table")]
    found = states(opt.group(*ops), feeds)
    return [
        found["w"].tolist(),
        found["table"].tolist(),
        float(found["loss_scale/current_loss_scale"]),
    ]


def scale_names() -> int:
    loss, scale = loss_of(), dynamic()
    ops = [scaler(scale).minimize(loss, var_list=name) for name in ("w", "table")]
    return len({n for op in ops for n in op.updates if n.startswith("loss_scale/current")})


def removed() -> bool:
    optimizer = scaler()
    optimizer.inner_optimizer.note = "mine"
    del optimizer.note
    return hasattr(optimizer.inner_optimizer, "note")


def set_through() -> float:
    optimizer = scaler(8.0, opt.Adam())
    optimizer.beta1 = 0.25
    return optimizer.inner_optimizer.beta1


of_scaler = partial(Row, SCALER)
SCALER_ROWS = [
    of_scaler("it wraps an optimizer", lambda: isinstance(scaler().inner_optimizer, GradientDescent)),
    of_scaler("it is an optimizer", lambda: isinstance(scaler(), Optimizer)),
    of_scaler("a number is a fixed loss scale", lambda: scaler(8.0).loss_scale == amp.FixedLossScale(8.0)),
    of_scaler('"dynamic" is a dynamic loss scale', lambda: scaler("dynamic").loss_scale == amp.DynamicLossScale()),
    of_scaler("a LossScale is kept", lambda: scaler(given := dynamic()).loss_scale is given),
    of_scaler("another word is refused", lambda: scaler("static"), ValueError, "Could not interpret loss scale identifier"),
    of_scaler("None is refused", lambda: scaler(None), ValueError, "loss_scale cannot be None"),
    of_scaler("what is no optimizer is refused", lambda: amp.LossScaleOptimizer(3, 8.0), ValueError, '"optimizer" must be an instance of'),
    of_scaler("an optimizer with clipnorm is refused", lambda: scaler(8.0, opt.Adam(clipnorm=1.0)), ValueError, "does not support wrapping optimizers with a clipnorm"),
    of_scaler("one that is wrapped already is refused", lambda: scaler(8.0, scaler()), ValueError, "must not already be an instance of a LossScaleOptimizer"),
    of_scaler("minimize scales, unscales and applies", lambda: w_after(scaler(8.0)), SGD_W),
    of_scaler("minimize with a dynamic scale does so too", lambda: w_after(scaler(dynamic())), SGD_W),
    of_scaler("sparse gradients are unscaled", lambda: table_after(scaler(dynamic())), SGD_TABLE),
    of_scaler("the loss that is returned is not scaled", lambda: fetched(scaler(8.0).minimize(loss_of()), "loss")[0] == fetched(GradientDescent().minimize(loss_of()), "loss")[0]),
    of_scaler("get_scaled_loss multiplies the loss", lambda: (v := scaled_loss(8.0))[0] == 8 * v[1]),
    of_scaler("get_scaled_loss multiplies by the present scale", lambda: (v := scaled_loss(dynamic(4.0)))[0] == 4 * v[1]),
    of_scaler("get_scaled_loss takes a callable", lambda: (v := scaled_loss(8.0, True))[0] == 8 * v[1]),
    of_scaler("get_scaled_loss keeps the type of float16", lambda: scaled_type("float16"), "FLOAT16"),
    of_scaler("get_scaled_loss refuses integers", lambda: scaler().get_scaled_loss(loss_of("whole")), ValueError, "Invalid type int64"),
    of_scaler("get_unscaled_gradients divides, and keeps None and indices", unscaled, [(G / 8).tolist(), None, [0.0625, 0.0625]]),
    of_scaler("get_unscaled_gradients refuses numbers", lambda: scaler().get_unscaled_gradients([3.0]), TypeError, "must be a value"),
    of_scaler("the steps of a custom loop are those of minimize", by_hand, SGD_W),
    of_scaler("apply_gradients refuses no pairs", lambda: scaler(dynamic()).apply_gradients([]), ValueError, "No variables provided"),
    of_scaler("apply_gradients refuses Nones alone", lambda: scaler(dynamic()).apply_gradients([(None, loss_of().graph.variable("w"))]), ValueError, "No gradients provided"),
    of_scaler("apply_gradients of the inner optimizer is called", lambda: w_after(scaler(8.0, Halved(1.0)), var_list="w"), [-0.5, 4.0]),
    of_scaler("an infinity skips the step", lambda: skipped(INF)),
    of_scaler("a NaN in a sparse gradient skips the step", lambda: skipped(NAN)),
    of_scaler("infinities of both signs skip the step", lambda: skipped(BOTH)),
    of_scaler("an infinity skips the step by selection", lambda: skipped(INF, "select")),
    of_scaler("a NaN skips the step by selection", lambda: skipped(NAN, "select")),
    of_scaler("a skipped step changes no velocity", lambda: skipped(INF, inner=Momentum(1.0, 0.5))),
    of_scaler("a skipped step is not counted", lambda: int(states(scaler(dynamic()).minimize(loss_of()), INF, 3)["global_step"]), 0),
    of_scaler("a skipped step halves the scale", lambda: scale_after(INF), 4.0),
    of_scaler("finite steps double the scale after the period", lambda: scale_after(FEEDS, FEEDS), 16.0),
    of_scaler("a fixed scale applies without a check if it is asked to", lambda: np.isnan(w_after(scaler(amp.UncheckedLossScale(8.0)), {**FEEDS, "g": G * np.nan})).all()),
    of_scaler("a fixed scale stays", lambda: fetched(scaler(8.0).minimize(loss_of()), "loss_scale")[0], 8.0),
    of_scaler("learning_rate is that of the inner optimizer", lambda: scaler(8.0, opt.Adam(0.25)).learning_rate, 0.25),
    of_scaler("learning_rate is set in the inner optimizer", lambda: set_rate(scaler()), 0.125),
    of_scaler("lr is its short name", lambda: scaler(8.0, opt.Adam(0.25)).lr, 0.25),
    of_scaler("iterations are those of the inner optimizer", lambda: (o := built(scaler())).iterations is o.inner_optimizer.iterations),
    of_scaler("weights are those of the inner optimizer", lambda: (o := built(scaler(8.0, opt.Adam()))).weights == o.inner_optimizer.weights),
    of_scaler("get_weights are those of the inner optimizer", lambda: len(built(scaler(dynamic(), Momentum()), var_list="w").get_weights()), 2),
    of_scaler("set_weights sets those of the inner optimizer", lambda: built(scaler(dynamic(), Momentum()), var_list="w").set_weights([0]), ValueError, "found 1 weights"),
    of_scaler("variables are those of the inner optimizer", lambda: [s.name for s in built(scaler(dynamic(), Momentum()), var_list="w").variables()], ["w/Momentum"]),
    of_scaler("get_slot is that of the inner optimizer", lambda: built(scaler(8.0, Momentum())).get_slot("w", "momentum").name, "w/Momentum"),
    of_scaler("add_slot adds to the inner optimizer", lambda: (o := scaler()).add_slot(v := loss_of().graph.variable("w"), "s") is o.inner_optimizer.get_slot(v, "s")),
    of_scaler("get_name is that of the inner optimizer", lambda: scaler(8.0, opt.Adam()).get_name(), "Adam"),
    of_scaler("hyperparameters are those of the inner optimizer", lambda: scaler(8.0, opt.Adam(beta1=0.5)).beta1, 0.5),
    of_scaler("hyperparameters are set in the inner optimizer", set_through, 0.25),
    of_scaler("attributes are deleted in the inner optimizer", removed, False),
    of_scaler("an attribute that neither has is an AttributeError", lambda: hasattr(scaler(), "beta1"), False),
    of_scaler("dir has the members of the inner optimizer", lambda: "beta1" in dir(scaler(8.0, opt.Adam()))),
    of_scaler("get_config has the optimizer and the loss scale", lambda: sorted(scaler().get_config()), ["conditional", "loss_scale", "optimizer"]),
    of_scaler("from_config makes an equal optimizer", lambda: config_round_trip(scaler(dynamic(), opt.Adam(0.5)))),
    of_scaler("from_config with a fixed scale too", lambda: config_round_trip(scaler(64.0))),
    of_scaler("from_config refuses an unknown class", lambda: amp.LossScaleOptimizer.from_config(scaler(8.0, Halved()).get_config()), ValueError, "Could not interpret optimizer identifier"),
    of_scaler("from_config needs the loss scale", lambda: amp.LossScaleOptimizer.from_config({"optimizer": {"class_name": "Adam"}}), TypeError, "no key 'loss_scale'"),
    of_scaler("a checkpoint with a loss scale restores without", lambda: restored(True)),
    of_scaler("a checkpoint without a loss scale restores with", lambda: restored(False)),
    of_scaler("two optimizers may have one loss scale", lambda: grouped(FEEDS), [SGD_W, SGD_TABLE, 8.0]),
    of_scaler("one loss scale is one variable", scale_names, 1),
    of_scaler("an infinity of one skips the other", lambda: grouped(INF), [W.tolist(), TABLE.tolist(), 4.0]),
    of_scaler("a NaN of the other skips the first", lambda: grouped(NAN), [W.tolist(), TABLE.tolist(), 4.0]),
    of_scaler("grad_loss is scaled too", lambda: seeded(0.5, scaler(8.0)), [-0.5, 4.0]),
    of_scaler("MixedPrecisionLossScaleOptimizer is its name in version 1", lambda: amp.MixedPrecisionLossScaleOptimizer is amp.LossScaleOptimizer),
]  # fmt: skip


def set_rate(optimizer: Any) -> float:
    optimizer.learning_rate = 0.125
    return optimizer.inner_optimizer.learning_rate


def trace(scale: float, period: int, multiplier: float, finite: str) -> list[float]:
    """Return the scale after each step; T has finite gradients, t tiny ones, F others."""
    tiny = {name: array * np.float32(1e-6) for name, array in FEEDS.items() if name != "ids"}
    given = {"T": FEEDS, "t": {**FEEDS, **tiny}, "F": INF}
    op = scaler(dynamic(scale, period, multiplier)).minimize(loss_of())
    found = []
    with amp.TrainingSession(op) as session:
        for word in finite:
            session.run(given[word])
            found.append(float(session.state_dict()["loss_scale/current_loss_scale"]))
    return found


class Own(LossScale):
    """A loss scale of a user's own that never changes but is checked."""

    @property
    def initial(self) -> float:
        return 4.0

    def applied(self, b: Any, state: Any) -> Any:
        return state

    def skipped(self, b: Any, state: Any) -> Any:
        return state


of_scale, of_fixed, of_dynamic = (partial(Row, page) for page in (SCALE, FIXED, DYNAMIC))
SCALE_ROWS = [
    of_scale("a LossScale is abstract", lambda: LossScale(), TypeError, "abstract"),
    of_scale("a LossScale of a user's own is used", lambda: w_after(scaler(Own()), var_list="w"), SGD_W),
    of_scale("that of a user's own skips too", lambda: w_after(scaler(Own()), INF), W.tolist()),
    of_scale("get(None) is None", lambda: amp.get_loss_scale(None), None),
    of_scale("get of a number is fixed", lambda: amp.get_loss_scale(2.0) == amp.FixedLossScale(2.0)),
    of_scale('get of "dynamic" is dynamic', lambda: isinstance(amp.get_loss_scale("dynamic"), amp.DynamicLossScale)),
    of_scale("get of a LossScale is itself", lambda: amp.get_loss_scale(given := dynamic()) is given),
    of_scale("get of a configuration makes one", lambda: amp.get_loss_scale({"class_name": "FixedLossScale", "config": {"loss_scale_value": 4.0}}) == amp.FixedLossScale(4.0)),
    of_scale("get refuses another word", lambda: amp.get_loss_scale("Dynamic"), ValueError, "Could not interpret loss scale identifier"),
    of_scale("get refuses a list", lambda: amp.get_loss_scale([8.0]), ValueError, "Could not interpret loss scale identifier"),
    of_fixed("the value must be a number of Python", lambda: amp.FixedLossScale("8"), ValueError, "must be a Python int or float"),
    of_fixed("an array is none", lambda: amp.FixedLossScale(np.ones(1)), ValueError, "must be a Python int or float"),
    of_fixed("a truth value is none", lambda: amp.FixedLossScale(True), ValueError, "must be a Python int or float"),
    of_fixed("the value must be at least 1", lambda: amp.FixedLossScale(0.5), ValueError, "must be at least 1"),
    of_fixed("zero is refused", lambda: amp.FixedLossScale(0), ValueError, "must be at least 1"),
    of_fixed("NaN is refused", lambda: amp.FixedLossScale(float("nan")), ValueError, "must be at least 1"),
    of_fixed("1 is allowed", lambda: amp.FixedLossScale(1).loss_scale_value, 1.0),
    of_fixed("get_config has the value", lambda: amp.FixedLossScale(8).get_config(), {"loss_scale_value": 8.0}),
    of_fixed("from_config makes an equal one", lambda: amp.FixedLossScale.from_config({"loss_scale_value": 8.0}) == amp.FixedLossScale(8)),
    of_fixed("its text has the value", lambda: repr(amp.FixedLossScale(8)), "FixedLossScale(loss_scale_value=8.0)"),
    of_dynamic("the scale begins with 2^15", lambda: amp.DynamicLossScale().initial_loss_scale, 2.0**15),
    of_dynamic("the period is 2000 steps", lambda: amp.DynamicLossScale().increment_period, 2000),
    of_dynamic("the multiplier is 2", lambda: amp.DynamicLossScale().multiplier, 2.0),
    of_dynamic("the arguments are scale, period and multiplier", lambda: (s := amp.DynamicLossScale(4, 5, 6)).get_config()["multiplier"] == s.multiplier == 6.0),
    of_dynamic("get_config has them", lambda: set(amp.DynamicLossScale().get_config()) >= {"initial_loss_scale", "increment_period", "multiplier"}),
    of_dynamic("from_config makes an equal one", lambda: amp.DynamicLossScale.from_config(dynamic().get_config()) == dynamic()),
    of_dynamic("its text has its arguments", lambda: "increment_period=2," in repr(dynamic())),
    of_dynamic("it grows after each period of finite steps", lambda: trace(1, 2, 2, "TTTTTT"), [1, 2, 2, 4, 4, 8]),
    of_dynamic("it shrinks with each skipped step, down to 1", lambda: trace(16, 2, 2, "FFFFFF"), [8, 4, 2, 1, 1, 1]),
    of_dynamic("a skipped step begins the period anew", lambda: trace(1, 2, 2, "TTTFT"), [1, 2, 2, 1, 1]),
    of_dynamic("it never becomes infinite", lambda: trace(2.0**126, 1, 2, "ttt"), [2.0**127] * 3),
    of_dynamic("a period of 1 grows with each step", lambda: trace(1, 1, 2, "TTTFTT"), [2, 4, 8, 4, 8, 16]),
    of_dynamic("the multiplier may be 3", lambda: trace(4, 2, 3, "TTFTT"), [4, 12, 4, 4, 12]),
    of_dynamic("a long trace is that of the page's tests", lambda: trace(4, 2, 2, "FTTTFTFTTTF"), [2, 2, 4, 4, 2, 2, 1, 1, 2, 2, 1]),
    of_dynamic("gradients of None are ignored", lambda: states(scaler(dynamic()).minimize(loss_of(), var_list=["w", "unused"]))["w"].tolist(), SGD_W),
    of_dynamic("sparse gradients are tested by their values", lambda: scale_after(NAN), 4.0),
    of_dynamic("the multiplier must be above 1", lambda: amp.DynamicLossScale(multiplier=1.0), ValueError, "impossible multiplier"),
    of_dynamic("the period must be a positive integer", lambda: amp.DynamicLossScale(increment_period=0), ValueError, "increment_period"),
    of_dynamic("the scale must be positive", lambda: amp.DynamicLossScale(-1.0), ValueError, "initial_loss_scale"),
    of_dynamic("the present scale can be read", lambda: built(scaler(dynamic())).current_loss_scale, 8.0),
]  # fmt: skip


@contextmanager
def fresh() -> Iterator[None]:
    """Begin as a new process does."""
    global_state.reset()
    try:
        yield
    finally:
        global_state.reset()


def enabled(*arguments: Any, **options: Any) -> Any:
    with fresh():
        return amp.enable_mixed_precision_graph_rewrite(*arguments, **options)


def precision_of_sessions(enable: bool = True, disable: bool = False) -> str:
    with fresh():
        optimizer = opt.Adam()
        if enable:
            optimizer = amp.enable_mixed_precision_graph_rewrite(optimizer)
        if disable:
            amp.disable_mixed_precision_graph_rewrite()
        with amp.TrainingSession(optimizer.minimize(loss_of()), emulate=True) as session:
            return session.info.precision


def flag_after_failure() -> Any:
    with fresh():
        with pytest.raises(ValueError, match="must be an instance"):
            amp.enable_mixed_precision_graph_rewrite(3)
        return global_state.rewrite


def with_policy() -> Any:
    with fresh():
        amp.set_global_policy("mixed_float16")
        return amp.enable_mixed_precision_graph_rewrite(3)


def policy_after() -> Any:
    with fresh():
        amp.enable_mixed_precision_graph_rewrite(opt.Adam())
        return amp.set_global_policy("mixed_float16")


def warned(call: Callable[[], Any]) -> str:
    with fresh(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return " ".join(str(w.message) for w in caught)


def with_session() -> None:
    with amp.TrainingSession(built_op(opt.Adam())):
        amp.enable_mixed_precision_graph_rewrite(opt.Adam())


def still_scaled() -> bool:
    with fresh():
        optimizer = amp.enable_mixed_precision_graph_rewrite(GradientDescent(1.0))
        amp.disable_mixed_precision_graph_rewrite()
        return optimizer.minimize(loss_of()).loss_scale is not None


def policy(name: str) -> list[Any]:
    with fresh():
        amp.set_global_policy(name)
        found = amp.global_policy()
        return [found.name, found.compute_dtype, found.variable_dtype]


def step_of_policy() -> str:
    with fresh(), warnings.catch_warnings():
        warnings.simplefilter("ignore", AmpWarning)
        amp.set_global_policy("mixed_float16")
        with amp.TrainingSession(built_op(opt.Adam()), emulate=True) as session:
            return session.info.precision


of_enable, of_disable, of_policy = (partial(Row, page) for page in (ENABLE, DISABLE, POLICY))
REWRITE_ROWS = [
    of_enable("it returns the optimizer with a loss scale", lambda: isinstance(enabled(opt.Adam()), amp.LossScaleOptimizer)),
    of_enable("the loss scale is dynamic by default", lambda: enabled(opt.Adam()).loss_scale == amp.DynamicLossScale()),
    of_enable("the loss scale may be a number", lambda: enabled(opt.Adam(), 64).loss_scale == amp.FixedLossScale(64)),
    of_enable("the loss scale may be a LossScale", lambda: enabled(opt.Adam(), given := dynamic()).loss_scale is given),
    of_enable("no loss scale is refused", lambda: enabled(opt.Adam(), None), ValueError, "loss_scale cannot be None"),
    of_enable("what is no optimizer is refused", lambda: enabled(3), ValueError, '"opt" must be an instance of'),
    of_enable("an optimizer that is wrapped is refused", lambda: enabled(scaler()), ValueError, "must not already be an instance of"),
    of_enable("an optimizer that clips is refused", lambda: enabled(opt.Adam(clipnorm=1.0)), ValueError, "with a clipnorm"),
    of_enable("sessions made afterwards compute in float16", precision_of_sessions, "float16"),
    of_enable("without it they compute in float32", lambda: precision_of_sessions(False), "float32"),
    of_enable("a failed call leaves the flag as it was", flag_after_failure, None),
    of_enable("a mixed policy excludes it, and is looked at first", with_policy, ValueError, "mixed precision policy has been set"),
    of_enable("it excludes a mixed policy", policy_after, ValueError, "graph rewrite has been enabled"),
    of_enable("sessions that exist are warned of", lambda: "will stay float32" in warned(with_session)),
    of_enable("it has a name of version 1", lambda: amp.enable_mixed_precision_graph_rewrite_v1 is amp.enable_mixed_precision_graph_rewrite),
    of_disable("sessions made afterwards compute in float32", lambda: precision_of_sessions(disable=True), "float32"),
    of_disable("it warns if the rewrite is off", lambda: "not enabled" in warned(amp.disable_mixed_precision_graph_rewrite)),
    of_disable("optimizers that are wrapped go on scaling", still_scaled),
    of_disable("it has a name of version 1", lambda: amp.disable_mixed_precision_graph_rewrite_v1 is amp.disable_mixed_precision_graph_rewrite),
    of_policy("mixed_float16 computes in float16 with float32 variables", lambda: policy("mixed_float16"), ["mixed_float16", "float16", "float32"]),
    of_policy("mixed_bfloat16 computes in bfloat16 with float32 variables", lambda: policy("mixed_bfloat16"), ["mixed_bfloat16", "bfloat16", "float32"]),
    of_policy("the default policy is float32", lambda: amp.global_policy().name, "float32"),
    of_policy("another policy is refused", lambda: policy("mixed_float8"), AmpError, "mixed_float8"),
    of_policy("sessions follow a mixed policy", step_of_policy, "float16"),
]  # fmt: skip


def cross(inner: Optimizer | None = None, *arguments: Any, **options: Any) -> Any:
    return amp.CrossShardOptimizer(inner or GradientDescent(1.0), *arguments, **options)


def on_two(make: Callable[[], Optimizer], feeds: Any = FEEDS, **options: Any) -> dict[str, Any]:
    """Return states and fetches of a step on two shards with equal data."""
    with shard_context():
        op = make().minimize(loss_of(), **options)
    with amp.TrainingSession(op, shards=Shards(Twin())) as session:
        out = session.run(feeds, ["loss", *(n for n in ("grads_finite",) if n in op.fetches)])
        return {**{k: v.tolist() for k, v in session.state_dict().items()}, **out}


def in_context(call: Callable[[], Any], size: int | None = None) -> Any:
    with shard_context(size):
        return call()


def reduced_none() -> Any:
    with shard_context():
        optimizer = cross()
        pairs = optimizer.compute_gradients(loss_of(), ["unused", "w"])
        return optimizer.reduce_gradients(pairs)[0][0]


def in_two(make: Callable[[], Optimizer]) -> list[float]:
    return on_two(make)["w"]


of_shards = partial(Row, SHARD)
SHARD_ROWS = [
    of_shards("the reduction is a mean by default", lambda: cross().reduction, "mean"),
    of_shards("the reduction may be a sum", lambda: cross(None, "sum").reduction, "sum"),
    of_shards("another reduction is refused", lambda: cross(None, "max"), ValueError, "Unsupported reduction"),
    of_shards("its name is CrossShardOptimizer by default", lambda: cross().get_name(), "CrossShardOptimizer"),
    of_shards("groups are a list of lists", lambda: cross(group_assignment=[0, 1]), ValueError, "must be a list of lists"),
    of_shards("groups are a permutation of the shards", lambda: cross(group_assignment=[[0, 1], [1, 2]]), ValueError, "permutation of range"),
    of_shards("groups must be those of all shards of the context", lambda: in_context(lambda: built(cross(group_assignment=[[0, 1]])), 4), ValueError, r"permutation of range\(4\)"),
    of_shards("outside a context it warns and assumes one shard", lambda: "one shard is assumed" in warned(lambda: built(cross()))),
    of_shards("on one shard it changes nothing", lambda: in_context(lambda: w_after(cross())), SGD_W),
    of_shards("the mean of equal gradients is one of them", lambda: in_two(cross), SGD_W),
    of_shards("the sum of equal gradients is their double", lambda: in_two(lambda: cross(None, "sum")), [-5.0, 10.0]),
    of_shards("sparse gradients of all shards are applied", lambda: on_two(cross)["table"], SGD_TABLE),
    of_shards("the loss of a mean is the mean", lambda: float(on_two(cross)["loss"]), float((W * G).sum() + 0.5 * TABLE[[2, 0, 2]].sum())),
    of_shards("None stays None", reduced_none, None),
    of_shards("a gradient of another kind is refused", lambda: in_context(lambda: cross().apply_gradients([(3.0, loss_of().graph.variable("w"))])), TypeError, "must be a value"),
    of_shards("get_slot is that of the inner optimizer", lambda: in_context(lambda: built(cross(Momentum())).get_slot("w", "momentum").name), "w/Momentum"),
    of_shards("variables are those of the inner optimizer", lambda: in_context(lambda: [s.name for s in built(cross(Momentum()), var_list="w").variables()]), ["w/Momentum"]),
    of_shards("get_config makes an equal optimizer", lambda: config_round_trip(cross(opt.Adam(0.5), "sum", group_assignment=[[0, 1]]))),
    of_shards("apply_gradients of the inner optimizer is called", lambda: on_two(lambda: cross(Halved(1.0)), var_list="w")["w"], [-0.5, 4.0]),
    of_shards("a sum of sums is not zero", lambda: in_two(lambda: cross(cross())), SGD_W),
    of_shards("groups of groups are summed one after the other", lambda: in_two(lambda: cross(cross(group_assignment=[[0, 1]]), group_assignment=[[1, 0]])), SGD_W),
    of_shards("a loss scale may be inside", lambda: in_two(lambda: cross(scaler(dynamic()))), SGD_W),
    of_shards("a loss scale may be around", lambda: in_two(lambda: scaler(dynamic(), cross())), SGD_W),
    of_shards("an infinity skips the step on all shards", lambda: bool(on_two(lambda: scaler(dynamic(), cross()), INF)["grads_finite"]), False),
    of_shards("a collective that bears no loss scale is refused around one", lambda: Compressing(scaler()), ValueError, "Loss scaling is not supported with this collective"),
    of_shards("a collective that bears no loss scale is refused inside one", lambda: scaler(8.0, Compressing(opt.Adam())), ValueError, "Loss scaling is not supported with this collective"),
]  # fmt: skip


class Compressing(opt.OptimizerWrapper):
    """Stands for a collective that a loss scale would disturb."""

    supports_loss_scaling = False


ROWS = [
    *OPTIMIZER_ROWS,
    *CHILD_ROWS,
    *KERAS_ROWS,
    *SCALER_ROWS,
    *SCALE_ROWS,
    *REWRITE_ROWS,
    *SHARD_ROWS,
]


def _id(row: Row) -> str:
    return f"{row.page.rsplit('/', 1)[-1]}: {row.sentence}"


@pytest.mark.parametrize("row", ROWS, ids=_id)
def test_a_documented_sentence_holds(row: Row) -> None:
    if isinstance(row.expected, type) and issubclass(row.expected, Exception):
        with pytest.raises(row.expected, match=row.text) as raised:
            row.call()
        assert isinstance(raised.value, AmpError) or "abstract" in row.text
    else:
        assert row.call() == row.expected


def test_no_sentence_stands_twice() -> None:
    names = [_id(row) for row in ROWS]
    assert len(set(names)) == len(names) > 233
    assert all(row.page.startswith("https://www.tensorflow.org/") for row in ROWS)


def test_a_row_can_fail() -> None:
    """What is compared is what the program gives: another expectation fails."""
    row = replace(OPTIMIZER_ROWS[1], expected="another name")
    with pytest.raises(AssertionError):
        test_a_documented_sentence_holds(row)
