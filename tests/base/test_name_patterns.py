"""Names that are close to one that is not there."""

from __future__ import annotations

import pytest

from amp_rewrite.base.name_patterns import nearest, suggestion

NAMES = ["enc/MatMul_1", "enc/Softmax", "dec/MatMul_2", "", "enc/Softmax"]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("matmul", ["enc/MatMul_1", "dec/MatMul_2"]),
        ("enc/Sofmax", ["enc/Softmax"]),
        ("SOFTMAX", ["enc/Softmax"]),
        ("softmx", ["enc/Softmax"]),
        ("nothing like it", []),
        ("", []),
    ],
)
def test_what_contains_it_comes_first_and_then_what_is_spelled_alike(
    wanted: str, found: list[str]
) -> None:
    assert nearest(wanted, NAMES)[: len(found) or None] == found


def test_an_error_names_them_or_says_what_kind_of_name_is_meant() -> None:
    assert suggestion("matmul", NAMES, "a node name") == "'enc/MatMul_1' or 'dec/MatMul_2'"
    assert suggestion("?", NAMES[1:], "a node name") == "'enc/Softmax' or 'dec/MatMul_2'"
    assert suggestion("?", map(str, range(6)), "a node name") == "a node name"
