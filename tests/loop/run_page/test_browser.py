"""The page of a run in a browser: drawn, refreshed, compared; silent, and of use to everybody."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from chromium import WINDOWS, Opened, drawn, opened, screen
from run_pages import made_up

from amp_rewrite.base.printable import printable
from amp_rewrite.loop.run_page.run_data import FAILED, FINISHED, RUNNING, checked
from amp_rewrite.loop.run_page.run_document import render
from amp_rewrite.rewriting.report.write_text import write_text

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


def sentence(page: Any, title: str) -> str:
    """Return what is said of the picture with a title to those who do not see it."""
    figure = page.locator("#charts figure").filter(has_text=title).first
    return figure.locator("[role=img]").get_attribute("aria-label")


def test_every_quantity_is_drawn_without_an_error_or_a_request(finished: Opened) -> None:
    assert finished.page.locator("h1").inner_text() == "Finished \u2013 step 20, epoch 1 of 3"
    shown = titles(finished.page)
    for begin in ("Loss:", "Loss scale", "Learning rate", "Norm", "Examples", "accuracy"):
        assert any(title.startswith(begin) for title in shown)
    assert sum(title.startswith("Share of the gradients") for title in shown) == 2
    drawn(finished.page)
    colors = finished.page.evaluate("""() => [...plots].map(({ plot }) => {
      const { width, height } = plot.ctx.canvas;
      const pixels = plot.ctx.getImageData(0, 0, width, height).data;
      return new Set(new Uint32Array(pixels.buffer)).size;
    })""")
    assert len(colors) == len(shown)
    assert min(colors) > 20
    assert (finished.errors, finished.requests) == ([], [])


def test_skipped_steps_are_told_where_they_were(finished: Opened) -> None:
    said = sentence(finished.page, "Loss scale")
    assert said.endswith("; a skipped 1 up to step 7, 1 up to step 14")
    assert "skipped" not in sentence(finished.page, "Learning rate")


def test_the_numbers_are_there_as_tables_too(finished: Opened) -> None:
    page, run = finished.page, made_up()
    page.locator("#numbers-0").click()
    rows = page.locator("#number-tables table").first.locator("tbody tr")
    rows.first.wait_for()  # a table is filled once it is opened
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
    assert page.locator("#cursor-step").inner_text() == "step 7"
    scale = page.locator("figure").filter(has_text="Loss scale").locator(".values b")
    assert scale.inner_text() == str(2**14)
    page.keyboard.press("End")
    assert page.locator("#cursor-step").inner_text() == "the last step"
    assert scale.inner_text() == str(2**13)


def test_pointing_at_a_picture_tells_the_numbers_there_in_all_of_them(several: Opened) -> None:
    page, run = several.page, made_up("first", FINISHED)
    drawn(page)
    rates = page.locator("#charts figure").filter(has_text="Examples a second")
    page.locator("#charts").scroll_into_view_if_needed()
    loss = page.locator("#charts figure").first.locator(".u-over")
    x = page.evaluate("[...plots][0].plot.valToPos(7, 'x')")
    loss.hover(position={"x": x, "y": 40})
    shown = page.locator("#charts figure").first.locator(".values li").first.inner_text()
    assert shown.split() == ["first", f"{run['curves']['loss'][6]:.4g}", "evaluation", "\u2013"]
    assert rates.locator(".values b").first.inner_text() == "307"
    loss.click(position={"x": x, "y": 40})
    assert page.locator("#cursor-step").inner_text() == "step 7"
    page.mouse.move(2, 2)
    assert rates.locator(".values b").first.inner_text() == "307"


def ranges(page: Any) -> list[list[float]]:
    return page.evaluate("[...plots].map(({ plot }) => [plot.scales.x.min, plot.scales.x.max])")


def test_a_part_is_seen_larger_in_all_pictures_by_mouse_and_by_fields(several: Opened) -> None:
    page = several.page
    drawn(page)
    over = page.locator("#charts .u-over").first
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    assert box is not None
    assert box["width"] > 100
    places = page.evaluate("[5, 10].map((step) => [...plots][0].plot.valToPos(step, 'x'))")
    page.mouse.move(box["x"] + places[0], box["y"] + 30)
    page.mouse.down()
    page.mouse.move(box["x"] + places[1], box["y"] + 40, steps=4)
    page.mouse.up()
    assert ranges(page) == [[5, 10]] * len(ranges(page))
    assert page.locator("#from").input_value() == "5"
    page.locator("#to").fill("12")
    page.locator("#to").press("Enter")
    assert ranges(page)[0] == [5, 12]
    page.locator("#whole").click()
    assert ranges(page) == [[0, 35]] * len(ranges(page))
    assert page.locator("#whole").is_disabled()


def test_time_smoothing_and_a_logarithmic_scale_are_a_choice(several: Opened) -> None:
    page = several.page
    drawn(page)
    series = page.evaluate("[...plots][0].plot.series.length")
    page.locator("#axis").select_option("time")
    drawn(page)
    assert ranges(page)[0] == [0, 3.5]
    page.locator("#smooth").focus()
    page.keyboard.press("End")
    drawn(page)
    assert page.evaluate("[...plots][0].plot.series.length") == series + 3
    page.locator("#log").check()
    drawn(page)
    assert page.evaluate("[...plots][0].plot.scales.y.distr") == 3
    smooth = page.evaluate("smoothed([1, null, 3, 1], 0.5)")
    assert smooth == [1, None, pytest.approx(7 / 3), pytest.approx(11 / 7)]


def test_runs_lie_over_each_other_and_can_be_hidden(several: Opened) -> None:
    page = several.page
    loss = page.locator("#charts figure").first
    assert loss.locator(".values bdi").all_inner_texts() == ["first", "second", "third"]
    colors = page.eval_on_selector_all(
        ".run-name svg .line", "lines => lines.map((line) => getComputedStyle(line).stroke)"
    )
    assert len(set(colors)) == 3
    page.get_by_role("checkbox", name="second").uncheck()
    assert loss.locator(".values bdi").all_inner_texts() == ["first", "third"]
    assert page.locator("h1").inner_text() == "3 runs: 2 finished, 1 failed"
    assert (several.errors, several.requests) == ([], [])


def names_of_rows(page: Any) -> list[str]:
    return page.locator("#run-table .run-name bdi").all_inner_texts()


def test_the_table_of_runs_has_their_settings_and_sorts(chromium: Any, tmp_path: Path) -> None:
    runs = [
        made_up("ten", FINISHED, 10, settings={"learning rate": 0.01, "note": "b10"}),
        made_up("five", FINISHED, 5, settings={"learning rate": 0.1, "note": "b9"}),
        made_up("two", FINISHED, 2, settings={"learning rate": 0.001}),
    ]
    with opened(chromium, write(tmp_path, *runs)) as found:
        page = found.page
        head = page.locator("#run-table thead")
        head.get_by_role("button", name="learning rate").click()
        assert names_of_rows(page) == ["two", "ten", "five"]
        assert page.locator("th[aria-sort=ascending]").inner_text().startswith("learning rate")
        assert page.evaluate("document.activeElement.textContent").startswith("learning rate")
        page.keyboard.press("Enter")
        assert names_of_rows(page) == ["five", "ten", "two"]
        page.keyboard.press("Enter")
        assert names_of_rows(page) == ["ten", "five", "two"]
        head.get_by_role("button", name="note").click()
        assert names_of_rows(page) == ["five", "ten", "two"]  # 9 is before 10; nothing is last
        assert (found.errors, found.requests) == ([], [])


def test_two_runs_are_compared_setting_by_setting(several: Opened) -> None:
    page = several.page
    page.locator("#first-run").select_option("second")
    page.locator("#second-run").select_option("first")
    rows = page.locator("#difference-table tbody tr")
    cells = {
        name: row.locator("td").all_inner_texts()
        for row in rows.all()
        if (name := row.locator("th").inner_text())
    }
    assert cells["steps"] == ["35", "20", "\u221215 (\u221242.9 %)"]
    assert cells["batch"] == ["8", "8", ""]
    losses = [made_up("second", steps=35)["curves"]["loss"], made_up("first")["curves"]["loss"]]
    assert cells["loss"][:2] == [f"{loss[-1]:.4g}" for loss in losses]
    drawn(page)
    distance = losses[1][19] - losses[0][19]
    assert page.locator("#difference-chart b").inner_text() == f"{distance:.4g}"
    assert (several.errors, several.requests) == ([], [])


def test_a_run_that_may_have_been_killed_is_not_counted_as_running(
    chromium: Any, tmp_path: Path
) -> None:
    runs = [made_up("a"), made_up("b", written=time.time() - 150)]
    with opened(chromium, write(tmp_path, *runs)) as found:
        assert found.page.locator("h1").inner_text() == "2 runs: 1 running, 1 without news"
        state = found.page.locator("#run-table td.text").nth(1)
        assert state.inner_text() == "no news for 3 min; the process may have been killed"


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
    run = made_up(steps=0, curves=empty, evaluations={"step": []}, every=60.0)
    with opened(chromium, write(tmp_path, run)) as found:
        assert "No step has been taken yet" in found.page.locator("#curves").inner_text()
        assert found.page.locator("figure").count() == 0
        assert (found.errors, found.requests) == ([], [])


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault(
    scheme: str, window: tuple[int, int], chromium: Any, tmp_path: Path
) -> None:
    axe = (files("axe_playwright_python") / "axe.min.js").read_text("utf-8")
    path = write(tmp_path, made_up("first"), made_up("second", FAILED, missing=["a remark"]))
    with opened(chromium, path, **screen(window, scheme)) as found:
        found.page.locator("#pause").click()
        found.page.locator("#numbers-0").click()
        drawn(found.page)
        found.page.evaluate(axe)
        faults = found.page.evaluate("axe.run().then((found) => found.violations)")
        serious = [f for f in faults if f["impact"] in ("serious", "critical")]
        assert [(f["id"], f["nodes"][0]["html"]) for f in serious] == []
        assert found.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_on_a_phone_no_word_of_the_runs_is_stacked_letter_by_letter(
    chromium: Any, tmp_path: Path
) -> None:
    runs = [made_up("low-float16", FINISHED), made_up("another_run_with_a_name", FAILED)]
    with opened(chromium, write(tmp_path, *runs), **screen(WINDOWS[1], "dark")) as found:
        for name in found.page.locator(".run-name bdi").all():
            box = name.bounding_box()
            assert box is not None
            assert box["height"] < 30
        table = found.page.locator("#run-table")
        assert table.evaluate("(table) => table.scrollWidth <= table.parentElement.clientWidth")


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
        run["settings"] = {name: name}
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
            assert printable(name) in page.locator("#first-run option").all_inner_texts()
            page.locator(f"#numbers-{number}").click()
        page.get_by_role("checkbox", name=printable(HOSTILE[0]), exact=True).uncheck()
        assert page.locator("figure").first.locator(".values li").count() == len(HOSTILE) - 1
        assert page.locator("main img, main script").count() == 0
        assert (found.errors, found.requests) == ([], [])
