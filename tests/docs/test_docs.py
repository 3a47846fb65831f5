"""Every shell block and every Python block of the documentation runs, page by page, in order."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from digits_file import keep_few
from pages import PAGES, README, ROOT, Block, blocks_of, name_of
from thinned import thinned
from tools_installed import REQUIRED, has

from amp_rewrite.cli.main import main

NOT_RUN = {
    "README.md": ["pip install '.[cpu]' && amp-rewrite demo", "pip install '.[dev]' && python"],
    "docs/arm.md": [
        *("amp-rewrite run", "options = onnxruntime.SessionOptions()"),
        *(
            "python tools/arm64/make_arm64.py",
            "python tools/make_kernel_table.py --provider cpu-arm64",
        ),
    ],
    "docs/deploy.md": [
        *("pip install onnxruntime-gpu", "import onnxruntime", "trtexec", "import openvino"),
        "import onnxruntime",
    ],
    "docs/measured.md": ["python benchmarks/bench.py gpu"],
    "docs/mixed_precision.md": ['eval "$(_AMP_REWRITE_COMPLETE'],
    "docs/openvino.md": ["import openvino", "pip install"],
    "docs/porting.md": ["import torch"],
    "docs/recipes.md": [f"python examples/finetune_{name}.py" for name in ("resnet", "bert")],
    "docs/targets.md": ["python tools/make_kernel_table.py"],
    "docs/tensorrt.md": ["trtexec", "pip install"],
    "docs/training.md": [
        *("from tensorboardX", "train_op = amp.optimizers.Adam"),
        "amp-rewrite train-step digits.onnx -o step.onnx",
    ],
    "docs/webgpu.md": [
        *("mkdir -p .cache/npm", "amp-rewrite run"),
        *("scaled = amp.LossScaleOptimizer", "pip install"),
    ],
    "docs/which_tool.md": ["python -m modelopt.onnx.autocast"],
}
"""Page -> how the blocks begin that stay as they are.

They install packages, serve, need a device, or take long and run elsewhere.
"""

RECIPES = ROOT / "docs" / "contributing.md"
"""The page whose sections each run in a copy of the checkout; blocks of diffs change it."""

OPERATORS = frozenset("|&;<>()$`*")
"""What makes a line more than one command with its arguments."""


@pytest.mark.parametrize("page", [p for p in PAGES if p != RECIPES], ids=name_of)
@pytest.mark.filterwarnings("default")
def test_the_blocks_of_a_page_run(
    page: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workplace)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks_of(page):
        missing = [module for module in block.needs if not has(module)]
        if missing and os.environ.get(REQUIRED) == "required":
            pytest.fail(f"{block.place}: {', '.join(missing)} cannot be imported")
        if missing:
            continue
        if block.directive == "file":
            (workplace / block.value).write_text(block.text, "utf-8")
        if block.runs and block.language == "sh":
            run_shell(block, workplace)
        elif block.runs:
            arguments = block.value.split() if block.directive == "arguments" else []
            monkeypatch.setattr(sys, "argv", [block.place, *arguments])
            run_python(block, names)
    names.clear()  # files that a block left open are closed now, not by some later collection


@pytest.mark.parametrize(
    "section",
    thinned(
        dict.fromkeys(b.section for b in blocks_of(RECIPES)),
        lambda section: section != "Recipe: a pass",
    ),
)
def test_a_recipe_can_be_followed_word_for_word(section: str, checkout: Path) -> None:
    for block in blocks_of(RECIPES):
        if block.section != section:
            continue
        if block.language == "diff":
            (checkout / "step.diff").write_text(block.text, "utf-8")
            run_bash("git apply step.diff", checkout, block.place)
        elif block.directive == "file":
            (checkout / block.value).write_text(block.text, "utf-8")
        elif block.runs:
            for line in block.text.splitlines():
                run_bash(line, checkout, block.place)


def test_there_is_a_recipe_for_each_common_change() -> None:
    changes = ["an operator on a list", "a gradient rule", "an optimizer", "a target"]
    changes += ["a rule that keeps something in float32", "a pass"]
    assert list(dict.fromkeys(b.section for b in blocks_of(RECIPES))) == [
        f"Recipe: {change}" for change in changes
    ]


def run_shell(block: Block, folder: Path) -> None:
    """Run the commands of a block; a plain `amp-rewrite` in this process, which saves a second."""
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words and words[0] == "amp-rewrite" and not OPERATORS & set(line.partition(" #")[0]):
            with pytest.raises(SystemExit) as end:
                main(words[1:])
            assert end.value.code == 0, f"{block.place}: {line}"
        elif words:
            run_bash(line, folder, block.place)
            if words[-1] == "examples/digits.py":  # five batches are enough for all that follows
                keep_few(folder / "digits_train.npz", 320)
                keep_few(folder / "digits_test.npz", 320)


def run_bash(line: str, folder: Path, place: str) -> None:
    """Run a line in bash, with the commands of this interpreter's environment in front."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", line],
        cwd=folder,
        env={**inherited, "PATH": path, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{place}: {line}\n{done.stdout}\n{done.stderr}"


def run_python(block: Block, names: dict[str, Any]) -> None:
    """Run a Python block; the blocks of a page share their names."""
    exec(compile(block.text, block.place, "exec"), names)


def test_the_blocks_that_do_not_run_are_these() -> None:
    found: dict[str, list[str]] = {}
    for page in PAGES:
        for block in blocks_of(page):
            if block.language in ("sh", "python") and not block.runs:
                assert block.value, f"{block.place}: no reason"
                found.setdefault(name_of(page), []).append(block.text)
    assert list(found) == list(NOT_RUN)
    for name, texts in found.items():
        for text, beginning in zip(texts, NOT_RUN[name], strict=True):
            assert text.startswith(beginning), name


def test_no_block_is_a_program_in_another_language() -> None:
    languages = {block.language for page in PAGES for block in blocks_of(page)}
    # tests/web opens the page in HTML; test_docstring_examples.py runs the examples of api.md
    others = {"yaml", "json", "text", "diff", "html", "pycon"}
    assert languages <= {"sh", "python"} | others


def test_the_readme_is_short_and_begins_with_the_two_commands() -> None:
    text = README.read_bytes()
    assert len(text) < 7_000
    assert text.startswith(b"# amp_rewrite\n")
    first, second, *_ = [b.text.strip() for b in blocks_of(README) if b.language == "sh"]
    assert first == "pip install '.[cpu]' && amp-rewrite demo"
    assert second == "pip install '.[dev]' && python tools/check.py"
