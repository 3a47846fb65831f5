# ruff: noqa: E501 a row is a line: the name, the function, the arguments that work
"""Calls that work: what reads, rewrites, measures and writes models, and what these return."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import onnx
import training_models

import amp_rewrite as amp

Call = tuple[Callable[..., Any], dict[str, Any]]
Table = dict[str, Callable[[], Call]]

MODEL = """<ir_version: 8, opset_import: ["": 17]>
m (float[n, 3] x) => (float[n, 2] y)
<float[3, 2] w = {1, 2, 3, 4, 5, 6}, float[2] b = {1, 2}> {
    h = MatMul(x, w)
    s = Add(h, b)
    y = Sigmoid(s)
}"""
BACKWARD = """<ir_version: 8, opset_import: ["": 17]>
g (float[2, 3] x, float[3] w) => (float loss, float[3] w_new)
<float[3] w = {1, 2, 3}, float one = {1}, float rate = {0.1}, int64[1] axes = {0}> {
    h = Mul (x, w)
    loss = ReduceSum <keepdims = 0> (h)
    seed = Identity (one)
    gh = Mul (seed, x)
    gw = ReduceSum <keepdims = 0> (gh, axes)
    delta = Mul (gw, rate)
    w_new = Sub (w, delta)
}"""
DATA = {"x": np.ones((2, 3), np.float32)}
OPTIONS = {f.name: f.default for f in dataclasses.fields(amp.RewriteOptions)}


def model() -> onnx.ModelProto:
    proto = onnx.parser.parse_model(MODEL)
    for number, node in enumerate(proto.graph.node):
        node.name = f"node{number}"
    return proto


@cache
def rewritten() -> amp.RewriteResult:
    return amp.rewrite(model())


def other() -> onnx.ModelProto:
    """Return the rewritten model."""
    return amp.to_proto(rewritten().model)


def lists() -> amp.OpLists:
    return amp.OpLists.from_names(allow=["MatMul"])


def low() -> onnx.ModelProto:
    """Return a model in float16 whose converter left nothing in float32."""
    return onnx.parser.parse_model(MODEL.replace("float", "float16"))


def folder() -> str:
    """Write a folder with that model beside where the call runs; return it."""
    os.makedirs("models", exist_ok=True)
    onnx.save(low(), "models/model.onnx")
    return "models"


@cache
def repaired() -> amp.Repair:
    return amp.repair(low())


@cache
def widened() -> amp.WideResult:
    return amp.widen(low())


@cache
def converted() -> amp.Conversion:
    return amp.convert(model(), stress=False)


@cache
def calibrated() -> amp.Calibration:
    return amp.calibrate(model(), DATA)


def injected() -> dict[str, Any]:
    names = {"loss": "loss", "seed": "seed", "gradients": {"w": "gw"}, "updates": {"w": "w_new"}}
    return {"model": onnx.parser.parse_model(BACKWARD), **names}


def made_for_training() -> onnx.ModelProto:
    """Return a model in ONNX's own training format."""
    return training_models.adam_mlp()


def of_one(function: Callable[..., Any], name: str, **others: Any) -> Call:
    """Return a call that takes what is fed to x by itself."""
    return (lambda x: function(**others, **{name: {"x": x}})), dict(DATA)


REWRITING: Table = {
    "RewriteOptions": lambda: (amp.RewriteOptions, dict(OPTIONS)),
    "rewrite": lambda: (amp.rewrite, {"model": model(), **OPTIONS}),
    "result.save": lambda: (rewritten().save, {"path": "own.onnx"}),
    "report_of_sizes": lambda: (rewritten().report_of_sizes, {"dims": {"n": 2}}),
    "load": lambda: (amp.load, {"source": model()}),
    "save": lambda: (amp.save, {"model": model(), "path": "own.onnx"}),
    "to_proto": lambda: (amp.to_proto, {"model": amp.load(model())}),
    "raise_opset": lambda: (amp.raise_opset, {"source": model(), "opset": 18}),
    "explain": lambda: (amp.explain, {"result": rewritten(), "node": "node0"}),
    "report.to_json": lambda: (rewritten().report.to_json, {}),
}  # fmt: skip

LISTS: Table = {
    "load_lists": lambda: (amp.load_lists, {"paths": "float16_cuda"}),
    "check_lists": lambda: (amp.check_lists, {"files": "float16_cpu"}),
    "OpLists.from_names": lambda: (amp.OpLists.from_names, {"allow": ["MatMul"]}),
    "classify": lambda: (lists().classify, {"domain": "", "op": "MatMul", "opset": 17, "attributes": {}}),
    "knows": lambda: (lists().knows, {"domain": "", "op": "MatMul"}),
    "with_level": lambda: (lists().with_level, {"level": "default"}),
    "denying": lambda: (lists().denying, {"operators": ["MatMul"]}),
    "allowing": lambda: (lists().allowing, {"operators": ["plug.domain::Op"]}),
    "configured": lambda: (lists().configured, {"level": "default", "environ": {}}),
}  # fmt: skip

NUMERICS: Table = {
    "evaluate": lambda: (amp.evaluate, {"model": other(), "feeds": DATA, "outputs": ["y"]}),
    "evaluate one feed": lambda: of_one(amp.evaluate, "feeds", model=other()),
    "Evaluator": lambda: (amp.Evaluator, {"model": other()}),
    "Evaluator.run": lambda: (amp.Evaluator(other()).run, {"feeds": DATA, "outputs": ["y"]}),
    "verify": lambda: (amp.verify, {"original": model(), "rewritten": other(), "data": DATA}),
    "verify one feed": lambda: of_one(amp.verify, "data", original=model(), rewritten=other()),
    "report of verify": lambda: (amp.verify(model(), other(), DATA).to_text, {}),
    "convert": lambda: (amp.convert, {"model": model(), "data": DATA, "stress": False, "precision": "float16"}),
    "conversion.save": lambda: (converted().save, {"path": "own.onnx"}),
    "conversion.to_dict": lambda: (converted().to_dict, {"report": converted().result.report}),
    "conversion.to_json": lambda: (converted().to_json, {"report": converted().result.report}),
    "calibrate": lambda: (amp.calibrate, {"model": model(), "data": DATA, "precision": "float16"}),
    "calibrate one feed": lambda: of_one(amp.calibrate, "data", model=model()),
    "calibration.save": lambda: (calibrated().save, {"path": "own.yaml"}),
    "check": lambda: (amp.check, {"model": low(), "data": DATA, "stress": False, "precision": "float16"}),
    "repair": lambda: (amp.repair, {"model": low(), "stress": False, "precision": "float16"}),
    "repair.save": lambda: (repaired().save, {"path": "own.onnx"}),
    "convert_folder": lambda: (amp.convert_folder, {"folder": folder(), "output": None, "precision": "float16"}),
    "widen": lambda: (amp.widen, {"model": low()}),
    "widened.save": lambda: (widened().save, {"path": "own.onnx"}),
    "progress_bar": lambda: (amp.progress_bar, {"work": "measuring"}),
    "error_budget": lambda: (amp.error_budget, {"model": model(), "data": DATA, "draws": 1}),
    "error_budget of a rewritten model": lambda: (amp.error_budget, {"model": model(), "rewritten": other(), "data": DATA}),
    "error_budget of one feed": lambda: of_one(amp.error_budget, "data", model=model()),
    "tune": lambda: (amp.tune, {"model": model(), "data": DATA, "rtol": 0.1, "metric": "cosine", "precision": "float16"}),
    "tune one feed": lambda: of_one(amp.tune, "data", model=model(), rtol=0.1, metric="cosine"),
}  # fmt: skip

FOREIGN: Table = {
    "inject_loss_scaling": lambda: (amp.inject_loss_scaling, injected()),
    "one initial value": lambda: (lambda value: amp.inject_loss_scaling(**injected(), initial={"w": value}), {"value": np.ones(3)}),
    "lower_training_operators": lambda: (amp.lower_training_operators, {"source": made_for_training()}),
}  # fmt: skip

TABLE = {**REWRITING, **LISTS, **NUMERICS, **FOREIGN}
