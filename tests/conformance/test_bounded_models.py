"""Random models over all families of operators, rewritten with random lists: nothing but rounding.

What a rewritten model computes may differ by no more than rounding can make of it, value by value;
how weights are stored, whether functions are inlined first and the process' hash seed change
nothing at all.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnxruntime as ort
import pytest
from bounded_models.generate import BoundedModel, generate
from onnx import numpy_helper

import amp_rewrite as amp
from amp_rewrite.oplists import OpLists

FAST, ALL, PIECE = 100, 5000, 500
SEARCHED = 500
PRODUCTS = ("MatMul", "Gemm", "Einsum")
PRECISIONS = ("float16", "bfloat16")
LISTS = ("allow", "allow", "infer", "infer", "clear", "deny")
SEEDS = ("0", "1", "4242")
REFUSED = {4137}
"""Models that ONNX Runtime does not run as they are: it loses the result of an If outside that a
Scan reads."""

pytestmark = pytest.mark.filterwarnings("ignore::amp_rewrite.errors.AmpWarning")


def precision_of(number: int) -> str:
    return PRECISIONS[number % 2]


def options_of(number: int, made: BoundedModel) -> dict[str, Any]:
    """Return a precision, and lists on which every operator of the model stands somewhere."""
    rng = np.random.default_rng(number)
    lists: dict[str, list[str]] = {name: [] for name in LISTS}
    for op in sorted(made.operators):
        lists[str(rng.choice(LISTS))].append(op)
    precision = precision_of(number)
    given = OpLists.from_names(
        allow=lists["allow"],
        infer=lists["infer"],
        clear=lists["clear"],
        deny=lists["deny"],
        precision=precision,
    )
    return {"precision": precision, "target": "schema", "lists": given}


def outputs(model: Any, made: BoundedModel, **options: Any) -> dict[str, np.ndarray]:
    """Return what a rewritten model computes, emulated."""
    result = amp.rewrite(model, **options)
    onnx.checker.check_model(amp.to_proto(result.model), full_check=True)
    return amp.evaluate(result.model, made.feeds)


def excess(made: BoundedModel, found: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Return the outputs that are further from the original's than rounding can bring them."""
    expected = amp.evaluate(made.model, made.feeds)
    errors = {
        name: float(np.abs(found[name].astype(np.float64) - expected[name]).max())
        for name in expected
    }
    # NaN is beyond any bound
    return {
        name: f"{error:.3g} > {made.bounds[name].error:.3g}"
        for name, error in errors.items()
        if not error <= made.bounds[name].error
    }


def same(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in one)


def check(number: int) -> None:
    made = generate(number, precision_of(number))
    onnx.checker.check_model(made.model, full_check=True)
    options = options_of(number, made)
    found = outputs(made.model, made, **options)
    assert excess(made, found) == {}
    assert same(found, outputs(made.model, made, weights="cast", **options))
    if made.model.functions:
        inlined = onnx.inliner.inline_local_functions(made.model)
        within = outputs(made.model, made, inline_functions=True, **options)
        assert excess(made, within) == {}
        assert same(within, outputs(inlined, made, **options))


@pytest.mark.share(15)
@pytest.mark.parametrize("number", range(FAST))
def test_a_random_model_differs_by_no_more_than_rounding(number: int) -> None:
    check(number)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, ALL, PIECE))
def test_many_random_models_differ_by_no_more_than_rounding(start: int) -> None:
    for number in range(start, start + PIECE):
        if number not in REFUSED:
            check(number)


@pytest.mark.slow
@pytest.mark.parametrize("number", REFUSED)
def test_the_runtime_does_not_run_the_original(number: int) -> None:
    made = generate(number, precision_of(number))
    session = ort.InferenceSession(
        made.model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    with pytest.raises(Exception, match="Missing Input"):
        session.run(None, made.feeds)


def test_the_models_have_all_families_of_operators() -> None:
    models = [generate(number, "float16") for number in range(FAST)]
    operators = frozenset[str]().union(*(made.operators for made in models))
    assert len(operators) >= 110
    assert {"If", "Loop", "Scan", "SequenceAt", "SequenceInsert", "Conv"} <= operators
    assert any(made.model.functions for made in models)


def test_the_bounds_say_something() -> None:
    tight = [
        value.error < value.bound / 10
        for number in range(FAST)
        for value in generate(number, "float16").bounds.values()
    ]
    assert sum(tight) > 0.7 * len(tight)


def test_a_negated_weight_is_beyond_the_bound() -> None:
    found = [excess(made, amp.evaluate(faulty, made.feeds)) for made, faulty in planted()]
    assert len(found) >= 10
    assert sum(map(bool, found)) > 0.5 * len(found)


def planted() -> list[tuple[BoundedModel, onnx.ModelProto]]:
    """Return models whose output is a product with a weight, and copies with the weight negated."""
    pairs: list[tuple[BoundedModel, onnx.ModelProto]] = []
    for number in range(SEARCHED):
        made = generate(number, "float16")
        faulty = onnx.ModelProto()
        faulty.CopyFrom(made.model)
        nodes = [node for node in faulty.graph.node if node.output[0] in made.bounds]
        weights = {node.input[1] for node in nodes if node.op_type in PRODUCTS}
        negated = [tensor for tensor in faulty.graph.initializer if tensor.name in weights]
        for tensor in negated:
            tensor.CopyFrom(numpy_helper.from_array(-numpy_helper.to_array(tensor), tensor.name))
        if negated:
            pairs.append((made, faulty))
    return pairs


def digest(first: int, last: int) -> str:
    """Return a digest of the rewritten models of some numbers."""
    found = hashlib.sha256()
    for number in range(first, last):
        made = generate(number, precision_of(number))
        result = amp.rewrite(made.model, **options_of(number, made))
        found.update(amp.to_proto(result.model).SerializeToString(deterministic=True))
    return found.hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize("last", [20, 1000], ids=["some", "many"])
def test_the_hash_seed_changes_nothing(last: int) -> None:
    program = (
        f"import sys, warnings; sys.path[:] = {sys.path!r}; warnings.simplefilter('ignore')\n"
        f"import runpy; print(runpy.run_path({__file__!r})['digest'](0, {last}))"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in SEEDS
    }
    assert len(digests) == 1
