"""Work in threads comes back in order, is bounded, and ends with the first error."""

import threading

import pytest

from amp_rewrite.graph import threads
from amp_rewrite.graph.threads import in_order


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 2)


@pytest.mark.usefixtures("two_cores")
def test_results_come_in_order_even_if_the_first_is_the_last_to_end():
    second = threading.Event()

    def compute(item: int) -> int:
        if item == 0:
            assert second.wait(60)
        if item == 1:
            second.set()
        return item * item

    assert list(in_order(compute, range(20))) == [item * item for item in range(20)]


@pytest.mark.usefixtures("two_cores")
def test_an_error_drops_what_has_not_begun_and_waits_for_the_threads():
    begun = []

    def fail(item: int) -> None:
        begun.append(item)
        raise ValueError(item)

    before = threading.active_count()
    with pytest.raises(ValueError, match="0"):
        list(in_order(fail, range(100)))
    assert threading.active_count() == before
    assert set(begun) <= {0, 1, 2, 3}
