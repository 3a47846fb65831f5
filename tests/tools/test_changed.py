"""What a change calls for: its own tests, those of what imports it, and no others."""

from __future__ import annotations

import subprocess
from pathlib import Path

import changed
import check
import pytest

ALWAYS = [*changed.ALWAYS]

FILES = {
    "amp_rewrite/__init__.py": "from amp_rewrite.api import rewrite",
    "amp_rewrite/dtypes.py": "",
    "amp_rewrite/paint/__init__.py": "from amp_rewrite.paint.pipeline import paint",
    "amp_rewrite/paint/pipeline.py": "from amp_rewrite.paint.passes import (\n    spread,\n)",
    "amp_rewrite/paint/passes/__init__.py": "",
    "amp_rewrite/paint/passes/spread.py": "from amp_rewrite.dtypes import FLOAT16",
    "amp_rewrite/paint/passes/fill.py": "def f():\n    import amp_rewrite.dtypes",
    "amp_rewrite/plans/cast.py": "from amp_rewrite.paint import paint",
    "amp_rewrite/api.py": "from amp_rewrite.plans.cast import plan",
    "tests/conformance/test_painting_cases.py": "import helper",
    "tests/structure/test_floors.py": "",
    "tests/support/helper.py": "import amp_rewrite as amp",
    "tests/paint/test_pipeline.py": "from amp_rewrite.paint.pipeline import paint",
    "tests/paint/passes/test_spread.py": "",
    "tests/plans/test_cast.py": "",
    "tests/plans/test_other.py": "",
    "tests/corpus/test_models.py": "from amp_rewrite.paint.pipeline import paint",
    "tests/test_dtypes.py": "",
    "tests/oplists/test_lists.py": "",
    "tests/docs/test_links.py": "",
    "tests/docs/test_docs.py": "",
    "tests/tools/test_check.py": "",
    "docs/painting.md": "",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "tests"),
    [
        (
            "amp_rewrite/paint/passes/spread.py",
            ["tests/paint/passes", "tests/paint/test_pipeline.py"],
        ),
        ("amp_rewrite/paint/pipeline.py", ["tests/paint", "tests/plans/test_cast.py"]),
        ("amp_rewrite/plans/cast.py", ["tests/plans"]),
        ("amp_rewrite/dtypes.py", ["tests/test_dtypes.py", "tests/paint/passes/test_spread.py"]),
    ],
)
def test_a_module_calls_for_its_folder_and_what_imports_it(
    checkout: Path, path: str, tests: list[str]
) -> None:
    choice = changed.choose(checkout, [path])
    assert sorted(choice.tests) == sorted([*tests, *ALWAYS])


@pytest.mark.parametrize(
    ("path", "tests"),
    [
        ("tests/plans/test_other.py", ["tests/plans/test_other.py"]),
        ("tests/support/helper.py", ["tests/conformance/test_painting_cases.py"]),
        ("tests/gone/test_gone.py", []),
        ("lists/float16_cuda.yaml", ["tests/oplists"]),
        ("tools/check.py", ["tests/tools/test_check.py"]),
        (
            "docs/painting.md",
            [
                "tests/docs/test_links.py",
                "tests/docs/test_docs.py::test_the_blocks_of_a_page_run[docs/painting.md]",
            ],
        ),
        ("LICENSE", []),
    ],
)
def test_other_files_call_for_what_tests_them(checkout: Path, path: str, tests: list[str]) -> None:
    assert changed.choose(checkout, [path]).tests == tests


def test_what_is_reached_through_others_is_said_to_be_left_out(checkout: Path) -> None:
    choice = changed.choose(checkout, ["amp_rewrite/paint/passes/spread.py"])
    assert choice.left_out[0] == "what reaches it through others: __init__, api, paint, plans"
    assert choice.left_out[-1].startswith("the corpus")


def test_tests_of_what_everything_imports_are_left_out_but_its_own(checkout: Path) -> None:
    for n in range(changed.MANY + 1):
        (checkout / f"tests/plans/test_many_{n}.py").write_text(
            "import amp_rewrite.dtypes", "utf-8"
        )
    choice = changed.choose(checkout, ["amp_rewrite/dtypes.py"])
    assert sorted(choice.tests) == sorted(["tests/test_dtypes.py", *ALWAYS])
    assert choice.left_out[0].startswith(f"{changed.MANY + 2} test files")


def test_files_are_those_of_commits_of_the_work_tree_and_new_ones(checkout: Path) -> None:
    def git(*words: str) -> None:
        author = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *author, *words], cwd=checkout, check=True, capture_output=True)

    git("init", "-b", "main")
    git("add", ".")
    git("commit", "-m", "first")
    git("checkout", "-b", "branch")
    (checkout / "amp_rewrite" / "api.py").write_text("x = 1", "utf-8")
    git("commit", "-am", "second")
    (checkout / "amp_rewrite" / "dtypes.py").unlink()
    (checkout / "new.py").touch()
    committed, others = "amp_rewrite/api.py", ["amp_rewrite/dtypes.py", "new.py"]
    assert changed.changed_files(checkout, None) == [committed, *others]
    assert changed.changed_files(checkout, "HEAD") == others
    with pytest.raises(SystemExit, match="--base"):
        changed.changed_files(checkout, "nowhere")


def test_every_file_of_the_package_is_read_as_the_floors_read_it() -> None:
    root = Path(__file__).parents[2]
    imports = changed.Imports(root)
    paint = "amp_rewrite/rewriting/paint"
    assert f"{paint}/pipeline.py" in imports.of(f"{paint}/passes/spread_deny.py")
    assert "tests/rewriting/paint/test_pipeline.py" in imports.of(f"{paint}/pipeline.py")
    assert (root / ALWAYS[0]).exists()
    assert (root / ALWAYS[1]).exists()


COMMANDS = check.steps("2", False, [])


def test_the_gate_checks_what_has_changed_and_says_what_it_leaves_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = "amp_rewrite/rewriting/paint/passes/spread_deny.py"
    steps = check.narrowed(COMMANDS, [path])
    assert list(steps) == ["lint", "format", "types", "tests"]
    assert steps["types"][-1] == path
    assert {*ALWAYS, "tests/rewriting/paint/passes"} <= {*steps["tests"]}
    assert "not slow" in steps["tests"]
    printed = capsys.readouterr().out
    assert path in printed
    assert "the corpus" in printed


@pytest.mark.parametrize(
    ("files", "steps"),
    [
        ([], ["lint", "format"]),
        (["README.md"], ["lint", "format", "tests"]),
        (["lists/float16_cpu.yaml"], ["lint", "format", "lists", "tests"]),
    ],
)
def test_steps_that_a_change_does_not_call_for_are_left_out(
    files: list[str], steps: list[str]
) -> None:
    assert list(check.narrowed(COMMANDS, files)) == steps


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["changed", "lint"], "--skip"),
        (["lint", "--base", "HEAD"], "--base is for changed"),
        (["change"], "unknown step change"),
    ],
)
def test_the_gate_refuses_what_it_would_ignore(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        check.parse(words)
    assert message in capsys.readouterr().err
