"""What a step says of itself is so, or is refused when it is read."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import amp_rewrite as amp
from amp_rewrite import optimizers
from amp_rewrite.errors import FetchError, OptionError, StepError
from amp_rewrite.graph.metadata_keys import STEP_KEY
from amp_rewrite.training.session.training_session import TrainingSession
from amp_rewrite.training.step.step import read_step

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (int64[N] i, float[N,3] t) => (float[N,3] y)
<float[5,4] table = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2},
 float[4,3] w = {1,2,3,4,5,6,7,8,9,1,2,3}> {
  rows = Gather(table, i) y = MatMul(rows, w) }"""
BATCH = {"i": np.array([1, 3]), "t": np.zeros((2, 3), np.float32)}
KINDS: tuple[Any, ...] = (
    *(None, True, 3, -1, 0.5, 1e300, "x", "\x1b[31m", [], {}, [1], ["x"], [[]]),
    *({"a": 1}, {"x": "y"}, {"x": None}, 10**30),
)
FREE = {
    *("class_name", "backoff_factor", "ceiling", "hysteresis", "increment_period"),
    *("initial_loss_scale", "multiplier", "consecutive_hysteresis"),
}
"""Keys inside a loss scale that nothing computes with."""


@cache
def step() -> bytes:
    """Return a step with everything that a description can have."""
    model = amp.load(onnx.parser.parse_model(MODEL))
    loss = amp.losses.mean_squared_error(model, "y", "t")
    optimizer = optimizers.WeightAverage(optimizers.GradientDescent(0.1))
    scaled = amp.LossScaleOptimizer(optimizer, "dynamic")
    built = amp.build_step(scaled.minimize(loss, accumulate=2), targets={"logits": "y"})
    return amp.to_proto(built).SerializeToString()


@cache
def description() -> str:
    return next(
        e.value for e in onnx.ModelProto.FromString(step()).metadata_props if e.key == STEP_KEY
    )


def described(change: Callable[[dict[str, Any]], object]) -> onnx.ModelProto:
    """Return the step with another description."""
    proto, content = onnx.ModelProto.FromString(step()), json.loads(description())
    change(content)
    next(e for e in proto.metadata_props if e.key == STEP_KEY).value = json.dumps(content)
    return proto


def use(proto: onnx.ModelProto) -> None:
    """Do everything that reads the description of a step; what it does not have may be said."""
    with TrainingSession(proto) as session:
        for act in (
            lambda: [session.run(BATCH) for _ in range(2)],
            lambda: session.evaluate(BATCH, averaged=True),
            lambda: session.export(averaged=True),
        ):
            with suppress(FetchError, OptionError, StepError):
                act()


def paths(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to every key, and to the first two items of every list."""
    if isinstance(content, dict):
        parts = list(content.items())
    else:
        parts = list(enumerate(content))[:2] if isinstance(content, list) else []
    for key, part in parts:
        yield (*path, key)
        yield from paths(part, (*path, key))


def put(path: tuple[Any, ...], new: Any) -> Callable[[dict[str, Any]], object]:
    def change(content: Any) -> None:
        for key in path[:-1]:
            content = content[key]
        content[path[-1]] = copy.deepcopy(new)

    return change


def remove(path: tuple[Any, ...]) -> Callable[[dict[str, Any]], object]:
    def change(content: Any) -> None:
        for key in path[:-1]:
            content = content[key]
        del content[path[-1]]

    return change


def is_refused(proto: onnx.ModelProto) -> bool:
    """Tell whether a step is refused in one line when it is read; nothing else may be raised."""
    line = STEP_KEY
    try:
        read_step(proto)
    except StepError as error:
        line = str(error)
    assert STEP_KEY in line
    assert line.isprintable()
    return line != STEP_KEY


def test_a_description_has_everything_that_is_changed_here() -> None:
    content = json.loads(description())
    assert all(value is not None and value != [] for value in content.values())
    use(onnx.ModelProto.FromString(step()))


@pytest.mark.share(9)
@pytest.mark.parametrize("key", sorted(json.loads(description())))
def test_every_key_of_every_other_kind_is_refused_when_it_is_read_or_does_no_harm(key: str) -> None:
    content = json.loads(description())
    passed: dict[Any, onnx.ModelProto] = {}
    for path in paths({key: content[key]}):
        for new in KINDS if FREE.isdisjoint(path) else ():
            proto = described(put(path, new))
            if not is_refused(proto):
                passed[path] = proto
    for proto in passed.values():
        use(proto)


READ = {"averages", "gradients", "boundary"}
"""Keys that may be missing, and are read after a step."""


def test_a_key_that_is_missing_is_refused_or_does_no_harm() -> None:
    for path in paths(json.loads(description())):
        proto = described(remove(path))
        if not is_refused(proto) and READ.issuperset(path):
            use(proto)


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "an unknown key": (lambda c: c.update(more=1), r": more; found 1; expected one of version, "),
    "averages of nothing": (
        lambda c: c["averages"].update(x="table"),
        r"averages; found 'x'; expected the name of a state",
    ),
    "averages of another shape": (
        lambda c: c["averages"].update(table="global_step"),
        r"averages\.table; found 'global_step'; expected a state of the shape \[5, 4\]",
    ),
    "a gradient that is not computed": (
        lambda c: c["gradients"].update(table="no"),
        r"gradients\.table; found 'no'; expected the name of a value",
    ),
    "a fetch that is not computed": (
        lambda c: c["fetches"].update(loss="no"),
        r"fetches\.loss; found 'no'",
    ),
    "a scale that is a tensor": (
        lambda c: c["fetches"].update(loss_scale="rows"),
        r"fetches\.loss_scale; found 'rows'; expected the name of a scalar",
    ),
    "a next value of another shape": (
        lambda c: c["states"][0].update(output="loss"),
        r"states\[0\]\.output; found 'loss', .*; expected float \[5, 4\]",
    ),
    "a state of another type": (
        lambda c: c["states"][0].update(dtype="double"),
        r"states\[0\]\.name; found '.*', tensor\(float\) .*; expected double \[",
    ),
    "a loss scale": (
        lambda c: c.update(loss_scale={"config": {"floor": "x"}}),
        r"loss_scale\.config\.floor; found 'x'; expected a finite number",
    ),
}


@pytest.mark.parametrize("case", CHANGES)
def test_the_error_names_the_key_what_was_found_and_what_was_expected(case: str) -> None:
    change, message = CHANGES[case]
    with pytest.raises(StepError, match=message):
        read_step(described(change))
