"""A random model by its seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from wild_models import control, elementwise, moving, products, reducing, spoil
from wild_models.pool import BFLOAT16, FLOAT16, INT64, Names, Pool, Value, declared

PLAIN = elementwise.ROWS | moving.ROWS | products.ROWS | reducing.ROWS
OPSETS = (13, 14, 15, 16, 17, 17, 18, 19, 20, 21, 21, 22, 23, 24, 25)
IR_VERSION = 10
"""The newest that all supported runtimes read; opset 23 and newer ask for no later one."""


@dataclass(frozen=True)
class WildModel:
    """A model and what to feed it.

    Attributes:
        model: The model.
        feeds: Input -> multiples of an eighth, at most 2 in magnitude.
        sorted: The same with its nodes in order; the model itself for most.
    """

    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    sorted: onnx.ModelProto


def generate(seed: int) -> WildModel:
    """Return the model of a seed: the same one on every machine."""
    rng = random.Random(seed)
    names = Names(rng, rng.choice(OPSETS))
    inputs = _inputs(names)
    pool = Pool(names, list(inputs), is_main=True)
    while not pool.own or len(pool.nodes) < rng.randint(4, 30):
        add_row(pool)
    ends = _ends(pool)
    model = _model(pool, inputs, ends)
    spoil.describe(model, rng)
    spoil.free_dimensions(model, rng)
    ordered = onnx.ModelProto()
    ordered.CopyFrom(model)
    if rng.random() < 0.1:
        spoil.unsort(model, rng)
    feeds = {v.name: pool.eighths(v.shape, 16) for v in inputs}
    return WildModel(model, feeds, ordered)


def add_row(pool: Pool) -> None:
    """Add one random row that the opset has."""
    nested = control.rows(_fill) if pool.depth < control.DEPTH else {}
    table = nested if nested and pool.rng.random() < 0.1 else PLAIN
    found = [row for since, row in table.values() if since <= pool.opset]
    pool.rng.choice(found)(pool)


def _fill(pool: Pool) -> None:
    """Add a few random rows to a body."""
    for _ in range(pool.rng.randint(1, 4)):
        add_row(pool)


def _inputs(names: Names) -> list[Value]:
    shapes = [(1, 3, 8), (2, 3), (2, 3, 4), (1, 2, 4, 4), (4,), (2, 8), (3, 1, 2)]
    picked = names.rng.sample(shapes, names.rng.randint(1, 3))
    return [Value(f"in{i}", 1, shape, 2.0) for i, shape in enumerate(picked)]


def _ends(pool: Pool) -> list[Value]:
    """Return outputs: late values and ones in the middle, seldom an initializer."""
    kinds = (1, 11, INT64, 9, FLOAT16, BFLOAT16)
    own = [value for value in pool.own if value.dtype in kinds]
    found = [own[-1], *pool.rng.sample(own, min(len(own), pool.rng.randint(0, 3)))]
    held = pool.names.initializers
    if held and pool.rng.random() < 0.05:
        tensor = pool.rng.choice(held)
        found.append(Value(tensor.name, tensor.data_type, tuple(tensor.dims)))
    return list({value.name: value for value in found}.values())


def _model(pool: Pool, inputs: list[Value], ends: list[Value]) -> onnx.ModelProto:
    names = pool.names
    given = [declared(value) for value in (*inputs, *names.inputs)]
    if pool.rng.random() < 0.2:
        pool.rng.choice(given[: len(inputs)]).type.tensor_type.shape.dim[0].dim_param = "N"
    graph = helper.make_graph(
        pool.nodes, "wild", given, [declared(v) for v in ends], names.initializers
    )
    imports = [helper.make_opsetid("", names.opset)]
    if names.functions or pool.rng.random() < 0.1:
        imports.append(helper.make_opsetid(control.DOMAIN, 1))
    return helper.make_model(
        graph, opset_imports=imports, ir_version=IR_VERSION, functions=names.functions
    )
