# ruff: noqa: E501 a row is a line: the name, the function, the arguments that work
"""Whatever a public function is given in place of an argument, it works or raises an AmpError.

The table has a call that works for each function; its parameters come from the signature. Each of
them is replaced by each of the things below, one at a time. Python's own TypeErrors,
AttributeErrors, KeyErrors and the like never come out, and an error is one line.
"""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import amp_rewrite as amp
from amp_rewrite import distributed, losses
from amp_rewrite import optimizers as opt
from amp_rewrite.errors import AmpError, AmpWarning

MODEL = """<ir_version: 8, opset_import: ["": 17]>
m (float[n, 3] x, int64[n] t) => (float loss)
<float[3, 2] w = {1, 2, 3, 4, 5, 6}, float[2] b = {1, 2}> {
    h = MatMul(x, w)
    y = Add(h, b)
    s = Mul(y, y)
    loss = ReduceMean<keepdims=0>(s)
}"""
FEEDS = {"x": np.ones((2, 3), np.float32)}

JUNK: dict[str, Any] = {
    "None": None,
    "a number": 3,
    "a negative number": -1,
    "a number above any float": 10**400,
    "NaN": float("nan"),
    "a word": "junk",
    "no word": "",
    "what UTF-8 cannot encode": "\ud800",
    "bytes": b"x",
    "an object": object(),
    "an empty list": [],
    "a list of objects": [object()],
    "lists of two lengths": [[1], [2, 3]],
    "an empty mapping": {},
    "a mapping to an object": {"a": object()},
    "an array": np.zeros((2, 2)),
    "an array of objects": np.array([object()]),
    "a class": list,
    "a function": lambda *_: 3,
    "a truth value": True,
    "a complex number": 1j,
    "a set": {1, 2},
}

Call = tuple[Callable[..., Any], dict[str, Any]]


def model() -> Any:
    return amp.load(onnx.parser.parse_model(MODEL))


def loss() -> amp.GraphValue:
    return amp.value(model(), "loss")


def step() -> opt.TrainOp:
    return opt.Adam().minimize(loss())


def session() -> amp.TrainingSession:
    return amp.TrainingSession(step())


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


def sharder() -> amp.CrossShardOptimizer:
    return amp.CrossShardOptimizer(opt.Adam())


def labels(make: Any, first: str) -> Call:
    return make, {"model": model(), first: "y", "labels": "t" if first == "logits" else "z"}


CLASSES = ["GradientDescent", "Momentum", "Adagrad", "Adadelta", "RMSProp", "Adam", "AdamW", "LAMB"]

OPTIMIZERS: dict[str, Callable[[], Call]] = {
    **{name: lambda name=name: (getattr(opt, name), {}) for name in (*CLASSES, "SGD")},
    **{f"{n}'s rule": lambda n=n: rule(getattr(opt, n)()) for n in CLASSES},
    "centered RMSProp's rule": lambda: rule(opt.RMSProp(centered=True)),
    "Optimizer": lambda: (opt.Optimizer, {"name": "own"}),
    "ConstantSchedule": lambda: (opt.ConstantSchedule, {"learning_rate": 0.1}),
    "StepSchedule": lambda: (opt.StepSchedule, {"learning_rate": 0.1, "decay_steps": 2}),
    "CosineSchedule": lambda: (opt.CosineSchedule, {"learning_rate": 0.1, "decay_steps": 2}),
    "LinearWarmUp": lambda: (opt.LinearWarmUp, {"learning_rate": 0.1, "warm_up_steps": 2}),
    "get": lambda: (opt.get, {"identifier": "adam"}),
    "register": lambda: (opt.register, {"kind": type("Registered", (opt.Adam,), {})}),
    "group": two_steps,
    "clip_by_global_norm": lambda: (opt.clip_by_global_norm, {"gradients": gradients(), "clip_norm": 1.0}),
    "clip_by_norm": lambda: (opt.clip_by_norm, {"gradient": gradients()[0], "clip_norm": 1.0}),
    "clip_with_norm": lambda: (opt.clip_with_norm, {"gradient": gradients()[0], "clip_norm": 1.0}),
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
}  # fmt: skip

LOSS_SCALING: dict[str, Callable[[], Call]] = {
    "LossScaleOptimizer": lambda: (amp.LossScaleOptimizer, {"optimizer": opt.Adam()}),
    "LossScaleOptimizer.from_config": lambda: (amp.LossScaleOptimizer.from_config, {"config": scaler().get_config()}),
    "get_scaled_loss": lambda: (scaler().get_scaled_loss, {"loss": loss()}),
    "get_unscaled_gradients": lambda: (scaler().get_unscaled_gradients, {"grads": gradients()}),
    "scaled compute_gradients": lambda: (scaler().compute_gradients, {"loss": loss()}),
    "scaled apply_gradients": lambda: (scaler().apply_gradients, {"grads_and_vars": pairs()}),
    "scaled get_gradients": lambda: (scaler().get_gradients, {"loss": loss(), "params": ["w"]}),
    "FixedLossScale": lambda: (amp.FixedLossScale, {"loss_scale_value": 2}),
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
    "kl_divergence": lambda: (losses.kl_divergence, {"model": model(), "logits": "y", "labels": "z"}),
    "huber": lambda: (losses.huber, {"model": model(), "predictions": "y", "labels": "z"}),
    "mean_absolute_error": lambda: (losses.mean_absolute_error, {"model": model(), "predictions": "y", "labels": "z"}),
    "mean_squared_error": lambda: labels(losses.mean_squared_error, "predictions"),
    "value": lambda: (amp.value, {"model": model(), "name": "y"}),
}  # fmt: skip

DISTRIBUTED: dict[str, Callable[[], Call]] = {
    "CrossShardOptimizer": lambda: (amp.CrossShardOptimizer, {"opt": opt.Adam()}),
    "CrossShardOptimizer.from_config": lambda: (amp.CrossShardOptimizer.from_config, {"config": sharder().get_config()}),
    "sharded compute_gradients": lambda: (sharder().compute_gradients, {"loss": loss()}),
    "sharded apply_gradients": lambda: (sharder().apply_gradients, {"grads_and_vars": pairs()}),
    "sharded reduce_gradients": lambda: (sharder().reduce_gradients, {"grads_and_vars": pairs()}),
    "sharded get_gradients": lambda: (sharder().get_gradients, {"loss": loss(), "params": ["w"]}),
    "ShardOptions": lambda: (distributed.ShardOptions, {}),
    "shard_context": lambda: (distributed.shard_context, {}),
    "started": lambda: (distributed.started, {"engine": "threads"}),
}  # fmt: skip

TRAIN: dict[str, Callable[[], Call]] = {
    "TrainingSession": lambda: (amp.TrainingSession, {"source": step()}),
    "run": lambda: (session().run, {"feeds": FEEDS}),
    "one feed": lambda: (lambda x: session().run({"x": x}), FEEDS),
    "session.evaluate": lambda: (session().evaluate, {"feeds": FEEDS}),
    "check_examples": lambda: (session().check_examples, {"arrays": FEEDS, "batches": [2]}),
    "load_state_dict": lambda: ((made := session()).load_state_dict, {"tensors": made.state_dict()}),
    "assign_state": lambda: (session().assign_state, {"name": "w", "value": np.ones((3, 2))}),
    "read_state": lambda: (session().read_state, {"name": "w"}),
    "session.learning_rate": lambda: (setter(session(), "learning_rate"), {"value": 0.5}),
    "State.assign": lambda: (loss().graph.variable("w").assign, {"value": np.ones((3, 2))}),
    "session.save": lambda: (session().save, {"path": "own.safetensors"}),
    "restore": lambda: (session().restore, {"path": "none.safetensors"}),
    "export": lambda: (session().export, {}),
    "build_step": lambda: (amp.build_step, {"train_op": step()}),
}  # fmt: skip

REWRITING: dict[str, Callable[[], Call]] = {
    "RewriteOptions": lambda: (amp.RewriteOptions, {}),
    "load": lambda: (amp.load, {"source": onnx.parser.parse_model(MODEL)}),
    "save": lambda: (amp.save, {"model": model(), "path": "own.onnx"}),
    "to_proto": lambda: (amp.to_proto, {"model": model()}),
}

TABLE = {**OPTIMIZERS, **LOSS_SCALING, **LOSSES, **DISTRIBUTED, **TRAIN, **REWRITING}


def parameters(make: Callable[[], Call]) -> list[str]:
    """Return the parameters of a call by their names; with any keyword, one that is known."""
    function, known = make()
    given = inspect.signature(function).parameters.values()
    named = [p.name for p in given if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    clips = inspect.isclass(function) and issubclass(function, opt.Optimizer)
    any_keyword = any(p.kind is p.VAR_KEYWORD for p in given) and clips
    return list(dict.fromkeys([*named, *known, *(["clipnorm"] if any_keyword else [])]))


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write into a folder of the test's own; what a call registers is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("amp_rewrite.optimizers.registry._REGISTERED", {})


def complaint(function: Callable[..., Any], arguments: dict[str, Any]) -> str | None:
    """Return what is wrong with what comes out of a call, or None."""
    try:
        function(**arguments)
    except AmpError as error:
        return None if error.what and "\n" not in str(error) else f"not one line: {error}"
    except Exception as error:  # noqa: BLE001 what else comes out is the question
        return f"{type(error).__name__}: {error}"
    return None


@pytest.mark.filterwarnings("ignore::amp_rewrite.errors.AmpWarning")
@pytest.mark.parametrize("name", TABLE)
def test_what_is_no_argument_is_an_amp_error_in_one_line(name: str) -> None:
    found: dict[str, str] = {}
    for parameter in parameters(TABLE[name]):
        function, known = TABLE[name]()
        for kind, junk in JUNK.items():
            text = complaint(function, {**known, parameter: junk})
            found |= {f"{parameter}={kind}": text} if text else {}
    assert found == {}


def test_the_calls_of_the_table_work() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AmpWarning)
        for name, make in TABLE.items():
            if name in ("started", "restore"):
                continue  # there are no shards, and no file
            function, known = make()
            function(**known)


def test_the_table_has_every_public_name_of_the_optimizers() -> None:
    values = {"NAMES", "IndexedSlices", "TrainOp", "UpdateInput", "UpdateRule", "Schedule"}
    wrappers = {"OptimizerWrapper", "OptimizerTypeError", "OptimizerValueError"}
    objects = {name: getattr(opt, name) for name in opt.__all__ if name not in values | wrappers}
    called = {id(make()[0]) for make in OPTIMIZERS.values()}
    functions = {
        name for name, made in objects.items() if name != "group" and id(made) not in called
    }
    assert functions == set()
