"""The page in a browser: drawn, found, filtered, explained; silent, and of use to everybody."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from chromium import WINDOWS, Opened, opened, screen
from page_models import BRANCHES, NAMES, bare_evidence, result_of
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.base.printable import printable
from amp_rewrite.cli.demo import demo_model
from amp_rewrite.page.overview import Evidence, causes
from amp_rewrite.page.render import write_page
from amp_rewrite.rewriting.report.gains import Sizes

pytestmark = pytest.mark.browser

MANY = 20_000


def write(folder: Path, result: amp.RewriteResult, evidence: Evidence | None = None) -> Path:
    page = folder / "page.html"
    write_page(page, result, result.report, evidence or bare_evidence())
    return page


@pytest.fixture(scope="module")
def measured_result() -> tuple[amp.RewriteResult, Evidence]:
    """Return the demo's model with everything that can be measured of it."""
    model = demo_model()
    result = amp.rewrite(model)
    verification = amp.verify(model, result.model, stress=False)
    sizes = Sizes(1_000_000, 500_000, exact=True)
    return result, Evidence(NAMES, sizes, verification)


@pytest.fixture
def demo(
    chromium: Any, measured_result: tuple[amp.RewriteResult, Evidence], tmp_path: Path
) -> Iterator[Opened]:
    with opened(chromium, write(tmp_path, *measured_result)) as found:
        yield found


@pytest.fixture
def branches(chromium: Any, tmp_path: Path) -> Iterator[Opened]:
    with opened(chromium, write(tmp_path, result_of(BRANCHES))) as found:
        yield found


def inked(page: Any) -> int:
    """Return how many colors there are on the canvas."""
    return page.evaluate("""() => {
      const canvas = document.getElementById("canvas");
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      const colors = new Set();
      for (let i = 0; i < data.length; i += 4) colors.add(data.slice(i, i + 3).join());
      return colors.size;
    }""")


def settle(page: Any) -> None:
    """Wait until what was asked for is drawn."""
    page.evaluate(
        "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )


def test_the_graph_is_drawn_without_an_error_or_a_request(demo: Opened) -> None:
    settle(demo.page)
    assert inked(demo.page) > 20
    assert demo.page.title() == "model.onnx: 100 % of the arithmetic in float16; half the file size"
    assert (demo.errors, demo.requests) == ([], [])


def test_every_filter_finds_as_many_nodes_as_the_report_counts(branches: Opened) -> None:
    expected = causes(result_of(BRANCHES).report)
    buttons = branches.page.locator("aside [data-cause]")
    assert buttons.count() == len(expected)
    for number, cause in enumerate(expected):
        button = branches.page.locator(f"aside [data-cause='{number}']")
        assert cause["reason"] in button.inner_text()
        assert button.locator(".count").inner_text() == str(cause["count"])
        button.click()
        assert branches.page.locator("#matches").inner_text() == f"{cause['count']} found"
        assert button.get_attribute("aria-pressed") == "true"
        button.click()
    assert branches.page.locator("#matches").inner_text() == ""


@pytest.mark.parametrize("source", ["branches", "demo"])
def test_the_page_explains_every_node_as_the_command_does(
    source: str, request: pytest.FixtureRequest
) -> None:
    page = request.getfixturevalue(source).page
    report = (result_of(BRANCHES) if source == "branches" else amp.rewrite(demo_model())).report
    said = page.evaluate("Array.from({length: nodeCount}, (_, n) => explain(n).join('\\n'))")
    assert said == [amp.explain(report, node.name) for node in report.nodes]


def test_the_panel_shows_the_chain_and_leads_along_it(branches: Opened) -> None:
    page, report = branches.page, result_of(BRANCHES).report
    page.locator("#search").fill("norm/div")
    page.keyboard.press("Enter")
    assert page.locator("#panel h3").first.inner_text() == "norm/div"
    assert page.locator("#explanation").inner_text() == amp.explain(report, "norm/div")
    steps = page.locator("#panel ol.chain button")
    origin = steps.last.inner_text()
    assert origin in ("norm/mean", "norm/square")
    steps.last.click()
    assert page.locator("#panel h3").first.inner_text() == origin


def test_a_search_opens_the_folders_around_what_it_finds(branches: Opened) -> None:
    page = branches.page
    page.locator("#fold").click()
    inner = page.evaluate("nodes.name.findIndex((n) => text(n) === 'inner')")
    assert not page.evaluate(f"view.places.has({inner})")
    page.locator("#search").fill("INNER")
    assert page.locator("#matches").inner_text() == "1 found"
    page.locator("#next-match").click()
    assert page.evaluate(f"view.places.has({inner}) && isInView({inner})")
    assert page.locator("#matches").inner_text() == "1 of 1"
    page.keyboard.press("Escape")
    assert page.locator("#search").input_value() == ""


def test_the_keyboard_follows_the_data_opens_and_folds(branches: Opened) -> None:
    page = branches.page
    said = page.locator("#said")
    page.locator("#canvas").focus()
    page.keyboard.press("ArrowDown")
    first = said.inner_text()
    assert first
    page.keyboard.press("ArrowDown")
    assert said.inner_text() != first
    page.evaluate("select(itemAt(nodes.name.findIndex((n) => text(n) === 'branch')))")
    page.locator("#canvas").focus()
    was_open = "open" in said.inner_text()
    page.keyboard.press("Enter")
    assert ("open" in said.inner_text()) != was_open
    scale = page.evaluate("view.scale")
    page.keyboard.press("+")
    assert page.evaluate("view.scale") > scale


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault(
    scheme: str,
    window: tuple[int, int],
    chromium: Any,
    measured_result: tuple[amp.RewriteResult, Evidence],
    tmp_path: Path,
) -> None:
    axe = (files("axe_playwright_python") / "axe.min.js").read_text("utf-8")
    result, evidence = measured_result
    page = tmp_path / "page.html"
    write_page(page, result, result.report, evidence)
    with opened(chromium, page, **screen(window, scheme)) as found:
        found.page.evaluate("showNode(nodes.name.findIndex((n) => text(n) === 'norm1.normalized'))")
        found.page.evaluate(axe)
        faults = found.page.evaluate("axe.run().then((found) => found.violations)")
        serious = [f for f in faults if f["impact"] in ("serious", "critical")]
        assert [(f["id"], f["nodes"][0]["html"]) for f in serious] == []
        assert found.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_on_a_phone_the_graph_comes_first_and_fits(chromium: Any, tmp_path: Path) -> None:
    path = write(tmp_path, result_of(BRANCHES))
    with opened(chromium, path, **screen(WINDOWS[1], "light")) as found:
        page = found.page
        page.evaluate("document.getElementById('graph').scrollIntoView()")
        settle(page)
        stage = page.locator("#stage").bounding_box()
        filters = page.locator("aside").first.bounding_box()
        assert stage is not None
        assert filters is not None
        assert stage["y"] + stage["height"] <= 844
        assert filters["y"] > stage["y"]
        assert page.evaluate("view.scale") >= 0.6
        assert page.evaluate("isInView(membersOf[0][0])")


HOSTILE = {
    "html": "<img src=x onerror=alert(1)>",
    "script": "</script><script>alert(1)</script>",
    "quotes": "\"a\" 'b' `c` \\ ${d}",
    "escape": "\x1b[31mred\x1b[0m",
    "null": "a\x00b",
    "direction": "abc\u202etxt.exe\u2066",
    "place": "{{program}}",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_name_is_shown_and_harmless(kind: str, chromium: Any, tmp_path: Path) -> None:
    name = HOSTILE[kind]
    model = parse(BRANCHES)
    node = next(n for n in model.graph.node if n.name == "last")
    node.name = name
    model.graph.input[0].name = model.graph.node[0].input[0] = name
    page = write(tmp_path, result_of(model))
    with opened(chromium, page) as found:
        found.page.on("dialog", lambda dialog: found.errors.append(dialog.message))
        number = found.page.evaluate(
            "(shown) => nodes.name.findIndex((n) => text(n) === shown)", printable(name)
        )
        found.page.evaluate(f"showNode({number})")
        settle(found.page)
        assert found.page.locator("#panel h3").first.inner_text() == printable(name)
        assert found.page.locator("#panel img, #panel script").count() == 0
        assert (found.errors, found.requests) == ([], [])


def chain(count: int) -> onnx.ModelProto:
    """Return a chain of operators in layers of 20 nodes."""
    helper, ops = onnx.helper, ("MatMul", "Relu", "Softmax", "Add")
    nodes = [
        helper.make_node(
            op,
            [f"v{i}", "w"] if op in ("MatMul", "Add") else [f"v{i}"],
            [f"v{i + 1}"],
            f"/model/layers.{i // 20}/block.{i // 5 % 4}/{op}_{i}",
        )
        for i, op in ((i, ops[i % 4]) for i in range(count))
    ]
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4, 4])
        for name in ("v0", f"v{count}")
    ]
    weight = onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [weight])
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def test_20000_nodes_are_usable(chromium: Any, tmp_path: Path) -> None:
    page = write(tmp_path, result_of(chain(MANY)))
    assert page.stat().st_size < 8_000_000
    with opened(chromium, page) as found:
        settle(found.page)
        found.page.locator("#search").fill("Softmax_12342")
        found.page.keyboard.press("Enter")
        settle(found.page)
        assert found.page.locator("#panel h3").first.inner_text().endswith("/Softmax_12342")
        assert found.page.evaluate("view.places.size") < 1_000
        assert (found.errors, found.requests) == ([], [])
