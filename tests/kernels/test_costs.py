"""Tables of what operators and casts take."""

import copy
from typing import Any

import pytest

from amp_rewrite import targets
from amp_rewrite.dtypes import BFLOAT16, FLOAT16, FLOAT32
from amp_rewrite.errors import KernelTableError
from amp_rewrite.kernels import costs

TABLE: dict[str, Any] = {
    "version": 1,
    "runtime": "a runtime",
    "device": "a device",
    "source": "this test",
    "families": {"product": ["MatMul", "Gemm"], "elementwise": ["Add", "com.microsoft::Gelu"]},
    "costs": [
        {"family": "product", "type": "float32", "from": 1000, "call": 5, "mac": 0.02},
        {"family": "product", "type": "float32", "call": 2, "element": 0.01, "mac": 0.1},
        {"family": "product", "type": "bfloat16", "call": 3, "mac": 0.01},
        {"family": "elementwise", "type": "float32", "call": 1, "element": 0.25},
    ],
    "casts": [
        {"to": "bfloat16", "producer": "none", "consumer": "elementwise", "call": 1},
        {"to": "bfloat16", "producer": "*", "consumer": "*", "call": 2, "element": 0.5},
    ],
    "joins": [
        {
            "producer": "product",
            "consumer": "elementwise",
            "saves": {"float32": {"call": 1, "element": 0.25}},
        }
    ],
}


def test_a_node_costs_by_family_type_and_size() -> None:
    table = costs.parse(TABLE, "t")
    assert (table.family("Gemm"), table.family("com.microsoft::Gelu")) == ("product", "elementwise")
    assert table.node("product", FLOAT32, 10, 100) == pytest.approx(2 + 0.1 + 10)
    assert table.node("product", FLOAT32, 10, 1000) == pytest.approx(5 + 20)
    assert table.node("elementwise", FLOAT32, 8) == pytest.approx(3)
    assert table.node(table.family("Sin"), FLOAT32, 8) == 0


def test_a_family_without_both_types_is_not_weighed() -> None:
    table = costs.parse(TABLE, "t")
    assert table.is_weighed("product", BFLOAT16)
    assert not table.is_weighed("elementwise", BFLOAT16)
    assert (table.takes_low(BFLOAT16), table.takes_low(FLOAT16)) == (True, False)


def test_the_first_row_of_casts_that_fits_counts() -> None:
    table = costs.parse(TABLE, "t")
    assert table.cast(BFLOAT16, "none", "elementwise").takes(100) == 1
    assert table.cast(BFLOAT16, "product", "elementwise").takes(100) == 52
    assert table.cast(FLOAT32, "product", "elementwise").takes(100) == 0


def test_a_join_saves_by_type() -> None:
    table = costs.parse(TABLE, "t")
    saved = table.join("product", "elementwise", FLOAT32)
    assert saved is not None
    assert saved.takes(4) == 2
    assert table.join("product", "elementwise", BFLOAT16) is None
    assert table.join("elementwise", "product", FLOAT32) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 2}, "unknown format"),
        ({"families": {"product": ["Add"], "elementwise": ["Add"]}}, "of two families"),
        ({"casts": [{"to": "bfloat16", "producer": "softmax", "consumer": "*"}]}, "is no family"),
        ({"costs": [{"family": "product", "type": "float32", "call": -1}]}, "a negative cost"),
    ],
)
def test_a_table_that_is_wrong_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises((KernelTableError, ValueError), match=said):
        costs.parse({**copy.deepcopy(TABLE), **change}, "t")


def test_a_table_that_is_not_there_is_an_error_with_its_name() -> None:
    with pytest.raises(KernelTableError, match=r"nowhere\.json: the table of costs cannot"):
        costs.load("nowhere")


def test_targets_without_a_table_have_no_costs() -> None:
    assert costs.of_target(targets.find("cuda"), BFLOAT16) is None
