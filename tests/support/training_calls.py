# ruff: noqa: E501 a row is a line: the name, the function, the arguments that work
"""Calls that work: what trains, from gradients to sessions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

import amp_rewrite as amp
from amp_rewrite import callbacks, distributed, losses
from amp_rewrite import optimizers as opt
from amp_rewrite.loop.plan_and_progress import Plan

MODEL = """<ir_version: 8, opset_import: ["": 17]>
m (float[n, 3] x, int64[n] t) => (float loss)
<float[3, 2] w = {1, 2, 3, 4, 5, 6}, float[2] b = {1, 2}> {
    h = MatMul(x, w)
    y = Add(h, b)
    s = Mul(y, y)
    loss = ReduceMean<keepdims=0>(s)
}"""
FEEDS = {"x": np.ones((2, 3), np.float32)}

Call = tuple[Callable[..., Any], dict[str, Any]]


def model() -> Any:
    return amp.load(onnx.parser.parse_model(MODEL))


def loss() -> amp.GraphValue:
    return amp.value(model(), "loss")


def step() -> opt.TrainOp:
    return opt.Adam().minimize(loss())


def session() -> amp.TrainingSession:
    return amp.TrainingSession(step())


def accumulated_step() -> Call:
    accumulation, rule = opt.Accumulation(2), opt.Adam()
    means = accumulation.add(rule.compute_gradients(loss()))
    return accumulation.every, {"train_op": rule.apply_gradients(means)}


def pairs() -> list[Any]:
    return opt.Adam().compute_gradients(loss())


def gradients() -> list[Any]:
    return [gradient for gradient, _ in pairs()]


def built(optimizer: opt.Optimizer | None = None) -> opt.Optimizer:
    made = optimizer or opt.Adam()
    made.minimize(loss())
    return made


def setter(owner: Any, name: str) -> Callable[[Any], None]:
    return lambda value: setattr(owner, name, value)


def rule(optimizer: opt.Optimizer) -> Call:
    """Return the class of a rule, with the hyperparameters that it has."""
    fields = dataclasses.fields(optimizer.rule)
    return type(optimizer.rule), {f.name: getattr(optimizer.rule, f.name) for f in fields}


def two_steps() -> Call:
    of = loss()
    first, second = (opt.Adam().minimize(of, var_list=name) for name in "wb")
    return lambda first, second: opt.group(first, second), {"first": first, "second": second}


def one_pair() -> Call:
    (gradient, variable), *_ = pairs()
    return (
        lambda gradient, variable: opt.Adam().apply_gradients([(gradient, variable)]),
        {"gradient": gradient, "variable": variable},
    )


def scaler() -> amp.LossScaleOptimizer:
    return amp.LossScaleOptimizer(opt.Adam())


def grouped(group: Any = None) -> opt.ParameterGroups:
    return opt.ParameterGroups(opt.Adam(), [group or {"variables": "w", "learning_rate": 0.1}])


def sharder() -> amp.CrossShardOptimizer:
    return amp.CrossShardOptimizer(opt.Adam())


class Alone(distributed.Collective):
    """The engine of a single shard."""

    rank, size, local_size = 0, 1, 1

    def sum(self, buffer: Any) -> None:
        raise NotImplementedError

    def gather(self, array: Any) -> list[Any]:
        return [array]

    def broadcast(self, array: Any) -> None:
        pass

    def split(self, groups: Any) -> Any:
        raise NotImplementedError

    def abort(self, status: int) -> None:
        pass

    def close(self) -> None:
        pass


def shards() -> distributed.Shards:
    return distributed.Shards(Alone())


def sharded() -> Any:
    return shards().data(FEEDS)


def run() -> callbacks.Run:
    return callbacks.Run(session(), Plan(1, 2))


def labels(make: Any, first: str) -> Call:
    return make, {"model": model(), first: "y", "labels": "t" if first == "logits" else "z"}


CLASSES = ["GradientDescent", "Momentum", "Adagrad", "Adadelta", "RMSProp", "Adam", "AdamW", "LAMB"]

TENSORFLOW = ["MomentumOptimizer", "AdagradOptimizer", "AdadeltaOptimizer", "RMSPropOptimizer", "AdamOptimizer", "RMSprop"]  # fmt: skip

OPTIMIZERS: dict[str, Callable[[], Call]] = {
    **{name: lambda name=name: (getattr(opt, name), {}) for name in (*CLASSES, *TENSORFLOW, "SGD")},
    **{f"{n}'s rule": lambda n=n: rule(getattr(opt, n)()) for n in CLASSES},
    "centered RMSProp's rule": lambda: rule(opt.RMSProp(centered=True)),
    "Optimizer": lambda: (opt.Optimizer, {"name": "own"}),
    "CosineSchedule": lambda: (opt.CosineSchedule, {"learning_rate": 0.1, "decay_steps": 2}),
    "LinearWarmUp": lambda: (opt.LinearWarmUp, {"learning_rate": 0.1, "warm_up_steps": 2}),
    "ExponentialDecay": lambda: (opt.ExponentialDecay, {"initial_learning_rate": 0.1, "decay_steps": 2, "decay_rate": 0.5}),
    "PolynomialDecay": lambda: (opt.PolynomialDecay, {"initial_learning_rate": 0.1, "decay_steps": 2}),
    "PiecewiseConstantDecay": lambda: (opt.PiecewiseConstantDecay, {"boundaries": [1], "values": [0.1, 0.2]}),
    "get": lambda: (opt.get, {"identifier": "adam"}),
    "group": two_steps,
    "clip_by_global_norm": lambda: (opt.clip_by_global_norm, {"gradients": gradients(), "clip_norm": 1.0}),
    "clip_by_norm": lambda: (opt.clip_by_norm, {"gradient": gradients()[0], "clip_norm": 1.0}),
    "clip_by_value": lambda: (opt.clip_by_value, {"gradient": gradients()[0], "clip_value_min": -1.0, "clip_value_max": 1.0}),
    "global_norm": lambda: (opt.global_norm, {"gradients": gradients()}),
    "minimize": lambda: (opt.Adam().minimize, {"loss": loss()}),
    "compute_gradients": lambda: (opt.Adam().compute_gradients, {"loss": loss()}),
    "apply_gradients": lambda: (opt.Adam().apply_gradients, {"grads_and_vars": pairs()}),
    "reduce_gradients": lambda: (opt.Adam().reduce_gradients, {"grads_and_vars": pairs()}),
    "apply_reduced": lambda: (opt.Adam().apply_reduced, {"grads_and_vars": pairs()}),
    "one pair": one_pair,
    "get_gradients": lambda: (opt.Adam().get_gradients, {"loss": loss(), "params": ["w"]}),
    "get_updates": lambda: (opt.Adam().get_updates, {"loss": loss(), "params": ["w"]}),
    "get_slot": lambda: (built().get_slot, {"var": "w", "name": "m"}),
    "add_slot": lambda: (built().add_slot, {"var": "w", "slot_name": "own"}),
    "add_weight": lambda: (built().add_weight, {"name": "own"}),
    "set_weights": lambda: ((made := built()).set_weights, {"weights": made.get_weights()}),
    "one weight": lambda: (lambda weight: built(opt.GradientDescent()).set_weights([weight]), {"weight": 3}),
    "learning_rate": lambda: (setter(built(), "learning_rate"), {"value": 0.5}),
    "iterations": lambda: (setter(opt.Adam(), "iterations"), {"value": loss().graph.global_step()}),
    "from_config": lambda: (opt.Adam.from_config, {"config": opt.Adam().get_config()}),
    "Optimizer.from_config": lambda: (opt.Adagrad.from_config, {"config": opt.Adagrad().get_config()}),
}  # fmt: skip

LOSS_SCALING: dict[str, Callable[[], Call]] = {
    "LossScaleOptimizer": lambda: (amp.LossScaleOptimizer, {"optimizer": opt.Adam()}),
    "LossScaleOptimizer.from_config": lambda: (amp.LossScaleOptimizer.from_config, {"config": scaler().get_config()}),
    "get_scaled_loss": lambda: (scaler().get_scaled_loss, {"loss": loss()}),
    "scale_loss": lambda: (scaler().scale_loss, {"loss": loss()}),
    "get_unscaled_gradients": lambda: (scaler().get_unscaled_gradients, {"grads": gradients()}),
    "scaled compute_gradients": lambda: (scaler().compute_gradients, {"loss": loss()}),
    "scaled apply_gradients": lambda: (scaler().apply_gradients, {"grads_and_vars": pairs()}),
    "scaled get_gradients": lambda: (scaler().get_gradients, {"loss": loss(), "params": ["w"]}),
    "FixedLossScale": lambda: (amp.FixedLossScale, {"loss_scale_value": 2}),
    "UncheckedLossScale": lambda: (amp.UncheckedLossScale, {"loss_scale_value": 2}),
    "DynamicLossScale": lambda: (amp.DynamicLossScale, {}),
    "DynamicLossScale.from_config": lambda: (amp.DynamicLossScale.from_config, {"config": amp.DynamicLossScale().get_config()}),
    "get_loss_scale": lambda: (amp.get_loss_scale, {"identifier": 2}),
    "enable": lambda: (amp.enable_mixed_precision_graph_rewrite, {"opt": opt.Adam()}),
    "set_global_policy": lambda: (amp.set_global_policy, {"policy": "float32"}),
    "Policy": lambda: (amp.Policy, {"name": "float32"}),
    "register_loss_scale_wrapper": lambda: (amp.register_loss_scale_wrapper, {"base": int, "wrapper": max}),
}  # fmt: skip

LOSSES: dict[str, Callable[[], Call]] = {
    "softmax_cross_entropy": lambda: labels(losses.softmax_cross_entropy, "logits"),
    "sigmoid_cross_entropy": lambda: (losses.sigmoid_cross_entropy, {"model": model(), "logits": "y", "labels": "z"}),
    "mean_squared_error": lambda: labels(losses.mean_squared_error, "predictions"),
    "huber": lambda: (losses.huber, {"model": model(), "predictions": "y", "labels": "z"}),
    "mean_absolute_error": lambda: (losses.mean_absolute_error, {"model": model(), "predictions": "y", "labels": "z"}),
    "value": lambda: (amp.value, {"model": model(), "name": "y"}),
}  # fmt: skip

DISTRIBUTED: dict[str, Callable[[], Call]] = {
    "CrossShardOptimizer": lambda: (amp.CrossShardOptimizer, {"opt": opt.Adam()}),
    "CrossShardOptimizer.from_config": lambda: (amp.CrossShardOptimizer.from_config, {"config": sharder().get_config()}),
    "sharded compute_gradients": lambda: (sharder().compute_gradients, {"loss": loss()}),
    "sharded apply_gradients": lambda: (sharder().apply_gradients, {"grads_and_vars": pairs()}),
    "sharded reduce_gradients": lambda: (sharder().reduce_gradients, {"grads_and_vars": pairs()}),
    "sharded get_gradients": lambda: (sharder().get_gradients, {"loss": loss(), "params": ["w"]}),
    "shard_context": lambda: (distributed.shard_context, {}),
}  # fmt: skip

SHARDS: dict[str, Callable[[], Call]] = {
    "mpi": lambda: (distributed.mpi, {}),
    "part": lambda: (shards().part, {"batch": FEEDS}),
    "one part": lambda: (lambda x: shards().part({"x": x}), FEEDS),
    "data": lambda: (shards().data, {"data": FEEDS}),
    "held_out": lambda: (shards().held_out, {"data": FEEDS}),
    "compare": lambda: (shards().compare, {"what": "version", "text": "1"}),
    "steps": lambda: (sharded().steps, {"batch": 2}),
}  # fmt: skip

WRAPPERS: dict[str, Callable[[], Call]] = {
    "wrapped minimize": lambda: (scaler().minimize, {"loss": loss()}),
    "wrapped add_slot": lambda: (built(scaler()).add_slot, {"var": "w", "slot_name": "own"}),
    "wrapped add_weight": lambda: (built(scaler()).add_weight, {"name": "own"}),
    "wrapped get_slot": lambda: (built(scaler()).get_slot, {"var": "w", "name": "m"}),
    "wrapped reduce_gradients": lambda: (scaler().reduce_gradients, {"grads_and_vars": pairs()}),
    "wrapped set_weights": lambda: ((made := built(scaler())).set_weights, {"weights": made.get_weights()}),
    "ParameterGroup": lambda: (lambda **given: grouped(opt.ParameterGroup(**given)).minimize(loss()), {"variables": "w", "learning_rate": 0.1, "name": "own", "clipnorm": 1.0}),
    "ParameterGroups": lambda: (opt.ParameterGroups, {"optimizer": opt.Adam(), "groups": [{"variables": "w"}]}),
    "ParameterGroups.from_config": lambda: (opt.ParameterGroups.from_config, {"config": grouped().get_config()}),
    "grouped get_slot": lambda: (built(grouped()).get_slot, {"var": "w", "name": "m"}),
    "grouped set_weights": lambda: ((made := built(grouped())).set_weights, {"weights": made.get_weights()}),
    "Schedule.from_config": lambda: (opt.CosineSchedule.from_config, {"config": opt.CosineSchedule(0.1, 2).get_config()}),
}  # fmt: skip


def arithmetic(method: str, **arguments: Any) -> Call:
    return getattr(amp.value(model(), "y"), method), arguments


VALUES: dict[str, Callable[[], Call]] = {
    **{
        method: lambda method=method: arithmetic(method)
        for method in ("max", "mean", "min", "sum", "softmax", "log_softmax", "transpose")
    },
    "astype": lambda: arithmetic("astype", dtype="float32"),
    "clip": lambda: arithmetic("clip", low=-1.0, high=1.0),
    "equal": lambda: arithmetic("equal", other=1.0),
    "maximum": lambda: arithmetic("maximum", other=1.0),
    "minimum": lambda: arithmetic("minimum", other=1.0),
    "reshape": lambda: (lambda shape: amp.value(model(), "y").reshape(shape), {"shape": [-1]}),
    "own transpose": lambda: (lambda axes: amp.value(model(), "y").transpose(axes), {"axes": [1, 0]}),
    "where": lambda: ((y := amp.value(model(), "y")).where, {"condition": y > 0, "other": 0.0}),
    "freeze": lambda: (amp.freeze, {"model": model(), "variables": "w"}),
    "unfreeze": lambda: (amp.unfreeze, {"model": model(), "variables": "w"}),
    "frozen": lambda: (amp.frozen, {"model": model()}),
    "epoch": lambda: (sharded().epoch, {"batch": 2}),
    "Trainer": lambda: (amp.Trainer, {"step": session()}),
    "Trainer.evaluate": lambda: (amp.Trainer(session()).evaluate, {"data": FEEDS, "batch": 2}),
    "Trainer.train": lambda: (amp.Trainer(session()).train, {"data": FEEDS, "batch": 2, "epochs": 1}),
    "train": lambda: (amp.train, {"step": step(), "data": FEEDS}),
    "doctor": lambda: (amp.doctor, {"step": session(), "data": FEEDS, "batch": 2, "steps": 1}),
    "WeightAverage": lambda: (opt.WeightAverage, {"optimizer": opt.Adam()}),
    "Accumulation": lambda: (opt.Accumulation, {"steps": 2}),
    "Accumulation.add": lambda: (opt.Accumulation(2).add, {"grads_and_vars": pairs()}),
    "Accumulation.every": lambda: accumulated_step(),
}  # fmt: skip

LOOP: dict[str, Callable[[], Call]] = {
    "Best": lambda: (callbacks.Best, {"monitor": "eval_loss", "mode": "min"}),
    "BestCheckpoint": lambda: (callbacks.BestCheckpoint, {"path": "best.safetensors"}),
    "EarlyStopping": lambda: (callbacks.EarlyStopping, {}),
    "CSVLogger": lambda: (callbacks.CSVLogger, {"path": "m.csv"}),
    "Watch": lambda: (callbacks.Watch, {"function": print}),
    "Run.stop": lambda: (run().stop, {"reason": "enough"}),
    "Run.save": lambda: (run().save, {"path": "own.safetensors"}),
}  # fmt: skip

TRAIN: dict[str, Callable[[], Call]] = {
    "TrainingSession": lambda: (amp.TrainingSession, {"source": step()}),
    "run": lambda: (session().run, {"feeds": FEEDS}),
    "one feed": lambda: (lambda x: session().run({"x": x}), FEEDS),
    "session.evaluate": lambda: (session().evaluate, {"feeds": FEEDS}),
    "check_examples": lambda: (session().check_examples, {"arrays": FEEDS}),
    "load_state_dict": lambda: ((made := session()).load_state_dict, {"tensors": made.state_dict()}),
    "run early": lambda: (session().run, {"feeds": FEEDS, "apply": True}),
    "agree": lambda: (session().agree, {"text": "told"}),
    "check_averages": lambda: (session().check_averages, {"averaged": False}),
    "diagnose": lambda: (session().diagnose, {"feeds": FEEDS}),
    "losing": lambda: (session().diagnose(FEEDS).losing, {"share": 0.5}),
    "assign_state": lambda: (session().assign_state, {"name": "w", "value": np.ones((3, 2))}),
    "read_state": lambda: (session().read_state, {"name": "w"}),
    "session.learning_rate": lambda: (setter(session(), "learning_rate"), {"value": 0.5}),
    "session.limit_skips": lambda: (session().limit_skips, {"steps": 3}),
    "State.assign": lambda: (loss().graph.variable("w").assign, {"value": np.ones((3, 2))}),
    "session.save": lambda: (session().save, {"path": "own.safetensors"}),
    "restore": lambda: (session().restore, {"path": "none.safetensors"}),
    "export": lambda: (session().export, {}),
    "build_step": lambda: (amp.build_step, {"train_op": step()}),
}  # fmt: skip

TABLE = {
    **OPTIMIZERS,
    **WRAPPERS,
    **LOSS_SCALING,
    **LOSSES,
    **DISTRIBUTED,
    **SHARDS,
    **LOOP,
    **TRAIN,
    **VALUES,
}
