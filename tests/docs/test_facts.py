"""Tables of the documentation name what the code has: no more, no less."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from house import FLOORS, PACKAGE
from pages import PAGES, README, ROOT, blocks_of

import amp_rewrite as amp
from amp_rewrite.cli import common
from amp_rewrite.cli.command_table import COMMANDS, command
from amp_rewrite.grad.rules import DIFFERENTIABLE
from amp_rewrite.oplists.lists import LEVELS
from amp_rewrite.optimizers import NAMES
from amp_rewrite.rewriting.paint import pipeline
from amp_rewrite.rewriting.paint.pass_table import PASSES
from amp_rewrite.rewriting.reasons import REASONS

DOCS = ROOT / "docs"
TOOLS = ROOT / "tools"


def first_cells(page: Path, heading: str) -> Iterator[str]:
    """Yield the code words in the first column of the tables of a section."""
    _, _, rest = page.read_text("utf-8").partition(f"\n{heading}\n")
    section = re.split(r"^#+ ", rest, maxsplit=1, flags=re.MULTILINE)[0]
    for line in section.splitlines():
        if line.startswith("| `"):
            yield from re.findall(r"`([^`]+)`", line.split(" | ")[0])


def test_every_reason_is_explained() -> None:
    listed = {*first_cells(DOCS / "painting.md", "## 8. Reasons")}
    assert listed == {str(reason) for reason in REASONS}


def loaded(name: str) -> Any:
    """Return a program of the folder of tools as a module."""
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


def test_keyword_arguments_and_the_page_follow_the_options() -> None:
    tool = loaded("make_option_table")
    assert tool.stale(write=False) == [], "run python tools/make_option_table.py"
    text = tool.PROGRAM.read_text("utf-8")
    assert tool.keywords(text.replace("    store: Store\n", "")) == text
    page = tool.PAGE.read_text("utf-8")
    assert tool.page(page.replace("Leave this node untouched.", "")) == page


def test_the_passes_are_described_in_their_order() -> None:
    tool = loaded("make_pass_table")
    hint = "run python tools/make_pass_table.py"
    page = tool.PAGE.read_text("utf-8")
    assert page == tool.page(page), hint
    described = re.findall(r"^\|[^|]*\| `([\w-]+)` \|", page.partition("\n## 3. Passes\n")[2], re.M)
    order = [step.name for step in (*pipeline.SEEDING, *pipeline.COLORING)]
    assert described[: len(order)] == order
    assert {f"`{step.name}`" for step in PASSES} <= {*re.findall("`[a-z-]+`", page)}


def test_every_pass_names_its_evidence() -> None:
    modules = {step.__module__ for step in PASSES}
    assert [m for m in sorted(modules) if "\nEvidence: " not in str(sys.modules[m].__doc__)] == []


def test_the_floors_are_those_that_the_imports_have() -> None:
    page = (DOCS / "architecture.md").read_text("utf-8")
    rows = {
        row.split("`")[1].rstrip("/"): row for row in page.splitlines() if row.startswith("| `")
    }
    assert list(rows) == [room for room in FLOORS if room != "amp_rewrite"]
    for room, row in rows.items():
        folders = {f.name for f in (PACKAGE / room).glob("[a-z]*") if any(f.glob("*.py"))}
        assert {f for f in folders - {"static"} if f"`{f}/`" not in row} == set(), room


def test_every_level_is_explained() -> None:
    assert set(first_cells(DOCS / "op_lists.md", "## Levels")) == set(LEVELS)


def test_every_option_of_convert_is_explained() -> None:
    cells = first_cells(DOCS / "mixed_precision.md", "## Options")
    listed = {cell.split()[0] for cell in cells}
    convert = command("convert")
    negations = {name for option in convert.params for name in option.secondary_opts}
    options = {name for option in convert.params for name in option.opts if name.startswith("-")}
    assert listed - negations == options - {"--help"}


def test_every_option_of_every_command_is_mentioned() -> None:
    guides = [p for p in PAGES if p.parent == DOCS and p.name != "api.md"]
    text = "".join(page.read_text("utf-8") for page in guides)
    for name in COMMANDS:
        options = {o for p in command(name).params for o in p.opts if o.startswith("--")}
        assert {o for o in options if o not in text} == set(), name


def test_the_exit_statuses_are_on_one_list() -> None:
    [listed] = re.findall(
        r"^Exit status of every command: (.*?)\n\n",
        (DOCS / "mixed_precision.md").read_text("utf-8"),
        re.M | re.DOTALL,
    )
    numbers = [int(number) for number in re.findall(r"(?:^|; )(\d+) ", listed)]
    first = (common.DONE, common.FAILED, common.WRONG_USAGE, common.NOT_STRICT, common.IN_DOUBT)
    assert numbers == [*first, common.INTERRUPTED]


def test_the_number_of_gradient_rules_is_right() -> None:
    for page in (README, DOCS / "training.md"):
        assert f"{len(DIFFERENTIABLE)} operators" in page.read_text("utf-8").replace("\n", " ")


def test_the_hooks_and_the_action_are_named_as_they_are() -> None:
    texts = [b.text for b in blocks_of(DOCS / "op_lists.md") if "uses:" in b.text]
    texts += [b.text for b in blocks_of(DOCS / "op_lists.md") if "repos:" in b.text]
    [*_, step], config = (yaml.safe_load(text) for text in texts)
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    assert step["with"].keys() <= action["inputs"].keys()
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    named = [hook["id"] for repo in config["repos"] for hook in repo["hooks"]]
    assert named == [hook["id"] for hook in hooks]
    assert [repo["rev"] for repo in config["repos"]] == [f"v{amp.__version__}"]


def test_no_page_has_a_placeholder_for_an_address() -> None:
    for page in PAGES:
        assert not re.search(r"<(owner|user|org)>", page.read_text("utf-8")), page


def test_every_optimizer_is_named() -> None:
    text = (DOCS / "training.md").read_text("utf-8")
    section = text.partition("\n## Optimizers\n")[2].partition("\n## ")[0]
    words = {word.lower() for word in re.findall(r"\w+", section)}
    assert set(NAMES) <= words


def test_every_key_that_is_written_to_files_is_explained() -> None:
    text = (ROOT / "amp_rewrite" / "graph" / "metadata_keys.py").read_text("utf-8")
    written = text.partition("# In the meta of a model")[0]
    keys = re.findall(r'^[A-Z_]+_KEY = "([\w.]+)"', written, re.MULTILINE)
    assert len(keys) > 5
    assert set(keys) <= set(first_cells(DOCS / "formats.md", "## Step model"))
