"""The page of a run in a browser: drawn, refreshed, compared; silent, and of use to everybody."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from chromium import Opened, opened
from run_pages import made_up

from amp_rewrite.printable import printable
from amp_rewrite.report.write_text import write_text
from amp_rewrite.run_page.run_data import FAILED, FINISHED, RUNNING, checked
from amp_rewrite.run_page.run_document import render

pytestmark = pytest.mark.browser


def write(folder: Path, *runs: dict[str, Any]) -> Path:
    page = folder / "run.html"
    write_text(page, render({"runs": list(runs), "source": None}))
    return page


@pytest.fixture
def finished(chromium: Any, tmp_path: Path) -> Iterator[Opened]:
    with opened(chromium, write(tmp_path, made_up(state=FINISHED))) as found:
        yield found


@pytest.fixture
def several(chromium: Any, tmp_path: Path) -> Iterator[Opened]:
    runs = [made_up("first", FINISHED), made_up("second", FINISHED, 35), made_up("third", FAILED)]
    with opened(chromium, write(tmp_path, *runs)) as found:
        yield found


def titles(page: Any) -> list[str]:
    return [text.strip() for text in page.locator("figcaption").all_text_contents()]


def test_every_quantity_is_drawn_without_an_error_or_a_request(finished: Opened) -> None:
    assert finished.page.locator("h1").inner_text() == "Finished \u2013 step 20, epoch 1 of 3"
    shown = titles(finished.page)
    for begin in ("Loss:", "Loss scale", "Learning rate", "Norm", "Examples", "accuracy"):
        assert any(title.startswith(begin) for title in shown)
    assert sum(title.startswith("Share of the gradients") for title in shown) == 2
    assert (finished.errors, finished.requests) == ([], [])


def test_skipped_steps_are_marked_where_they_were(finished: Opened) -> None:
    figure = finished.page.locator("figure").filter(has_text="Loss scale")
    marks = figure.locator("path.skip title").all_text_contents()
    assert marks == ["a: 1 skipped up to step 7", "a: 1 skipped up to step 14"]
    assert "16 steps" not in figure.locator("svg[role=img]").get_attribute("aria-label")


def test_the_numbers_are_there_as_tables_too(finished: Opened) -> None:
    page, run = finished.page, made_up()
    page.locator("#numbers-0").click()
    rows = page.locator("#number-tables table").first.locator("tbody tr")
    assert rows.count() == run["step"]
    cells = rows.nth(6).locator("td").all_text_contents()
    assert cells[0] == "7"
    assert cells[3] == "1"
    assert cells[5] == "\u2013"
    assert page.locator("#number-tables table").count() == 2


def test_the_slider_tells_the_numbers_of_a_step(finished: Opened) -> None:
    page = finished.page
    page.locator("#cursor").focus()
    for _ in range(13):
        page.keyboard.press("ArrowLeft")
    assert page.locator("#cursor-step").inner_text() == "7"
    scale = page.locator("figure").filter(has_text="Loss scale").locator(".values")
    assert scale.inner_text().strip() == str(2**14)
    assert page.locator("figure .at").count() == page.locator("figure").count()
    page.keyboard.press("End")
    assert page.locator("#cursor-step").inner_text() == "the last one"


def test_runs_lie_over_each_other_and_can_be_hidden(several: Opened) -> None:
    page = several.page
    loss = page.locator("figure").first
    assert loss.locator(".values li").count() == 6
    colors = page.eval_on_selector_all(
        ".run-name svg .line", "lines => lines.map((line) => getComputedStyle(line).stroke)"
    )
    assert len(set(colors)) == 3
    page.get_by_role("checkbox", name="second").uncheck()
    assert loss.locator(".values li").count() == 4
    assert "3 runs, 0 of them running" in page.locator("h1").inner_text()
    assert (several.errors, several.requests) == ([], [])


def test_a_running_page_refreshes_itself_until_the_run_ends(chromium: Any, tmp_path: Path) -> None:
    path = write(tmp_path, made_up(steps=10))
    with opened(chromium, path, color_scheme="light") as found:
        page = found.page
        assert page.locator("html").get_attribute("data-refreshes") == "true"
        page.locator("#log").check()
        page.locator("#theme").click()
        page.locator("#numbers-0").click()
        page.locator("#log").focus()
        write(tmp_path, made_up(state=FINISHED, steps=30))
        page.locator("h1").filter(has_text="Finished").wait_for()
        assert "step 30" in page.locator("h1").inner_text()
        assert page.locator("#log").is_checked()
        assert page.evaluate("document.activeElement.id") == "log"
        assert page.locator("html").get_attribute("data-theme") == "dark"
        assert page.locator("#number-tables details").evaluate("(details) => details.open")
        assert page.locator("html").get_attribute("data-refreshes") == "false"
        assert page.locator("#pause").is_hidden()
        assert set(found.requests) == {path.as_uri()}
        assert found.errors == []


def test_a_paused_page_waits(chromium: Any, tmp_path: Path) -> None:
    path = write(tmp_path, made_up(steps=10))
    with opened(chromium, path) as found:
        found.page.locator("#pause").click()
        assert found.page.locator("#pause").get_attribute("aria-pressed") == "true"
        write(tmp_path, made_up(state=FINISHED, steps=30))
        time.sleep(1.7)
        assert "Running" in found.page.locator("h1").inner_text()
        found.page.locator("#pause").click()
        found.page.locator("h1").filter(has_text="step 30").wait_for()


def test_a_run_of_which_nothing_is_heard_is_shown_as_such(chromium: Any, tmp_path: Path) -> None:
    path = write(tmp_path, made_up(state=RUNNING, written=time.time() - 150))
    with opened(chromium, path) as found:
        text = "No news for 3 min; the process may have been killed"
        assert text in found.page.locator("h1").inner_text()
        assert found.page.locator("h1").get_attribute("class") == "bad"


def test_an_aborted_run_says_why(chromium: Any, tmp_path: Path) -> None:
    run = made_up(state=FAILED, reason="LossScaleError: <b>20 steps</b> were skipped")
    with opened(chromium, write(tmp_path, run)) as found:
        title = found.page.locator("h1")
        assert title.inner_text().startswith("Failed: LossScaleError: <b>20 steps</b> were")
        assert title.get_attribute("class") == "bad"
        assert found.page.locator("html").get_attribute("data-refreshes") == "false"


def test_a_run_without_a_step_says_so(chromium: Any, tmp_path: Path) -> None:
    empty = {name: [] for name in made_up()["curves"]}
    run = made_up(steps=0, curves=empty, evaluations={"step": []})
    with opened(chromium, write(tmp_path, run)) as found:
        assert "No step has been taken yet" in found.page.locator("#curves").inner_text()
        assert found.page.locator("figure").count() == 0
        assert (found.errors, found.requests) == ([], [])


@pytest.mark.parametrize(("scheme", "zoom"), [("light", 1.0), ("dark", 0.8)])
def test_axe_finds_no_serious_fault(
    scheme: str, zoom: float, chromium: Any, tmp_path: Path
) -> None:
    axe = (files("axe_playwright_python") / "axe.min.js").read_text("utf-8")
    path = write(tmp_path, made_up("first"), made_up("second", FAILED, missing=["a remark"]))
    window = {"width": round(1366 / zoom), "height": round(768 / zoom)}
    settings = {"viewport": window, "device_scale_factor": zoom, "color_scheme": scheme}
    with opened(chromium, path, **settings) as found:
        found.page.locator("#pause").click()
        found.page.locator("#numbers-0").click()
        found.page.evaluate(axe)
        faults = found.page.evaluate("axe.run().then((found) => found.violations)")
        serious = [f for f in faults if f["impact"] in ("serious", "critical")]
        assert [(f["id"], f["nodes"][0]["html"]) for f in serious] == []
        assert found.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "\"a\" 'b' `c` \\ ${d}",
    "\x1b[31mred\x1b[0m",
    "a\x00b",
    "abc\u202etxt.exe\u2066",
    "{{program}}",
    "__proto__",
)


def test_names_are_shown_and_harmless(chromium: Any, tmp_path: Path) -> None:
    runs: list[dict[str, Any]] = []
    for name in HOSTILE:
        run = made_up(name, FINISHED)
        run["layers"]["variable"][-1] = name
        run["evaluations"][name] = [0.25, 0.75]
        data = checked(run)
        assert data is not None
        runs.append(data)
    with opened(chromium, write(tmp_path, *runs)) as found:
        page = found.page
        page.on("dialog", lambda dialog: found.errors.append(dialog.message))
        assert page.locator(".run-name bdi").all_inner_texts() == list(map(printable, HOSTILE))
        for number, name in enumerate(HOSTILE):
            assert printable(name) in page.locator("#layers bdi").all_inner_texts()
            assert any(printable(name).lower() in text.lower() for text in titles(page))
            page.locator(f"#numbers-{number}").click()
        page.get_by_role("checkbox", name=printable(HOSTILE[0]), exact=True).uncheck()
        assert page.locator("figure").first.locator(".values li").count() == 2 * len(HOSTILE) - 2
        assert page.locator("main img, main script").count() == 0
        assert (found.errors, found.requests) == ([], [])
