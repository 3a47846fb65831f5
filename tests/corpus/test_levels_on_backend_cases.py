"""Every level, target and weight treatment over the backend models: none crashes, all stay valid.

So with every node allowed by name.

Every fourth model meets one combination by default, and each all of them in the slow profile.
"""

import itertools
from functools import cache
from typing import Any

import pytest
from backend_cases import all_cases
from invariants import verify_invariants

import amp_rewrite as amp
from amp_rewrite.oplists import OpLists, load_lists

LEVELS = ("UNSAFE_FORCE_ALL", "TENSOR_CORES_ONLY", "TREAT_INFER_AS_DENY", "default")
ALLOWED = [
    {"allow_nodes": ["*"], "target": target, "precision": precision, "keep_io_types": True}
    for target, precision in (("schema", "float16"), ("schema", "bfloat16"), ("webgpu", "float16"))
]
COMBINATIONS = [
    {
        "level": level,
        "target": target,
        "precision": precision,
        "weights": weights,
        "keep_io_types": keep,
    }
    for level, target, precision, weights, keep in itertools.product(
        LEVELS,
        ("schema", "cuda", "cpu"),
        ("float16", "bfloat16"),
        ("convert", "cast"),
        (True, False),
    )
    if level != "UNSAFE_FORCE_ALL" or (precision == "float16" and target != "cpu")
]
COMBINATIONS += ALLOWED


@cache
def lists_of(precision: str, target: str) -> OpLists:
    target = "cuda" if target == "schema" else target
    return load_lists(None, precision=precision, target=target)


def problems(case: Any, options: dict[str, Any]) -> list[str]:
    lists = lists_of(options["precision"], options["target"])
    try:
        result = amp.rewrite(case.model, lists=lists, **options)
        original = amp.load(case.model)
        keep = options["keep_io_types"] or not result.changed
        found = verify_invariants(original, result.model, keep_io_types=keep)
        again = amp.rewrite(result.model, lists=lists, **options)
    except Exception as error:  # noqa: BLE001 nothing may come out, whatever it is
        return [f"{case.name}: {type(error).__name__}: {error}"]
    lines = [f"{case.name}: {violation}" for violation in found]
    return [*lines, f"{case.name}: a second rewrite changes it"] if again.changed else lines


@pytest.mark.share(19)
@pytest.mark.parametrize("index", range(len(COMBINATIONS)))
def test_each_combination_converts_its_share_of_the_models(index: int) -> None:
    found = [problems(c, COMBINATIONS[index]) for c in all_cases()[index :: 4 * len(COMBINATIONS)]]
    assert [line for lines in found for line in lines] == []


@pytest.mark.slow
@pytest.mark.parametrize("index", range(len(COMBINATIONS)))
def test_each_combination_converts_every_model(index: int) -> None:
    found = [problems(case, COMBINATIONS[index]) for case in all_cases()]
    assert [line for lines in found for line in lines] == []
