"""How far curves are apart, and the table with PyTorch's columns and without."""

import numpy as np
import pytest
import tables

convergence = pytest.importorskip("bench_convergence")


def row(count: int) -> dict[str, object]:
    figures = {"losses": [0.5, 0.6, 0.7][:count], "accuracies, %": [90.0, 91.0, 92.0][:count]}
    return {"training": "net", "low, %": 100.0, **figures, "apart, %": [1.5, 2.5][: count - 1]}


def test_curves_are_compared_by_means_of_windows_and_of_summed_batches() -> None:
    exact = np.repeat([2.0, 1.0], 10)
    assert convergence.apart(exact * 1.25, exact) == pytest.approx(0.25)
    batches = np.stack([exact - 0.5, exact + 0.5], 1).reshape(-1)
    assert convergence.apart(exact, batches) == pytest.approx(0)


@pytest.mark.parametrize("count", [2, 3])
def test_the_table_has_columns_of_pytorch_where_it_was_measured(count: int) -> None:
    head, _, line = tables.convergence([row(count)]).splitlines()
    assert ("PyTorch autocast" in head) == (count == 3)
    assert line.count("|") == head.count("|") == 3 * count + 2
