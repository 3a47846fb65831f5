"""Of tests with many parameter sets the fast suite has a share, which meets what it should."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
from thinned import mark_rest


class Item:
    """A test with parameters, as far as marks are concerned."""

    def __init__(self, test: str, params: dict[str, Any], *marks: Any) -> None:
        self.nodeid = f"{test}[{'-'.join(map(str, params.values()))}]"
        self.callspec = SimpleNamespace(params=params)
        self.marks = {mark.name: mark for mark in marks}

    def get_closest_marker(self, name: str) -> Any:
        return self.marks.get(name)

    def add_marker(self, mark: Any) -> None:
        self.marks[mark.name] = mark.mark


def fast(items: list[Any]) -> list[dict[str, Any]]:
    mark_rest(items)
    return [item.callspec.params for item in items if "slow" not in item.marks]


def of(test: str, mark: Any, *marks: Any) -> list[Any]:
    pairs = product("abc", range(4))
    return [Item(test, {"letter": a, "digit": b}, mark.mark, *marks) for a, b in pairs]


def test_a_step_without_a_common_divisor_meets_every_value() -> None:
    found = fast(of("test_one", pytest.mark.share(5)))
    assert [(p["letter"], p["digit"]) for p in found] == [("a", 0), ("b", 1), ("c", 2)]


def test_the_first_with_each_value_is_fast_too() -> None:
    found = fast(of("test_one", pytest.mark.share(12, each="letter")))
    assert [(p["letter"], p["digit"]) for p in found] == [("a", 0), ("b", 0), ("c", 0)]


def test_each_may_be_a_field() -> None:
    rows = [SimpleNamespace(op=op) for op in ("Add", "Add", "Mul", "Add")]
    mark = pytest.mark.share(9, each="row.op").mark
    items = [Item("test_one", {"row": row}, mark) for row in rows]
    assert [p["row"] for p in fast(items)] == [rows[0], rows[2]]


def test_each_test_is_counted_by_itself_and_what_is_slow_is_not() -> None:
    items = of("test_one", pytest.mark.share(12)) + of("test_two", pytest.mark.share(12))
    items.insert(0, Item("test_one", {}, pytest.mark.share(12).mark, pytest.mark.slow.mark))
    assert len(fast(items)) == 2
    assert len(fast([Item("test_three", {"digit": n}) for n in range(3)])) == 3
