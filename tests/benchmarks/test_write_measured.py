from pathlib import Path

import pytest
import write_measured
from results import Results
from tables import spread


def test_the_pictures_are_what_the_committed_results_give() -> None:
    found = write_measured.contents()
    for picture in write_measured.PICTURES:
        assert picture.read_text("utf-8") == found[picture]


@pytest.mark.parametrize("page", write_measured.PAGES, ids=lambda page: page.name)
def test_the_tables_of_a_page_are_what_the_committed_results_give(page: Path) -> None:
    text = page.read_text("utf-8")
    assert write_measured.with_figures(text) == text
    assert "<!-- figures: " in text


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    found = Results.of("rewrite a.onnx", [{"model": "a", "cpu": [1.0, 2.5]}], {"torch": "2"})
    found.write(tmp_path / "new" / "found.json")
    assert Results.read(tmp_path / "new" / "found.json") == found


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([1.0], "1.00"), ([3.0, 1.0, 2.5], "2.50 (1.00 to 3.00)")],
)
def test_a_spread_is_the_median_between_least_and_greatest(numbers: list[float], text: str) -> None:
    assert spread(numbers) == text
