"""A process pays for what it uses: what each command imports, in modules, not in seconds."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest

from amp_rewrite.oplists import load_lists

ROOMS_OF_A_REWRITE = {
    *("base", "cli", "dtypes", "errors", "graph", "kernels", "lists"),
    *("oplists", "policy", "rewriting", "targets", "values"),
}

LIGHT = {
    *("amp_rewrite.numerics", "amp_rewrite.numerics.convert"),
    *("amp_rewrite.numerics.convert.file", "amp_rewrite.numerics.convert.opset"),
}
"""What loads the rest of its room when it is asked for a verdict."""

NEVER = {
    *("mpi4py", "networkx", "onnx_ir", "onnxruntime", "openvino", "safetensors", "sympy"),
    *("torch", "yaml"),
}
"""Packages that neither help nor a rewrite with built-in lists takes."""

SHOW = """
import sys
from amp_rewrite.cli import main
try:
    main(sys.argv[1:])
except SystemExit as leaving:
    assert not leaving.code, leaving.code
print("modules", *sys.modules)
"""


@dataclass(frozen=True)
class Budget:
    """What a command may import.

    Attributes:
        modules: How many modules in all, a sixth above what it was when it was set.
        rooms: The rooms and files of amp_rewrite.
        without: Packages that it must do without.
    """

    modules: int
    rooms: set[str]
    without: set[str]


HELP = Budget(230, {"base", "cli", "errors"}, NEVER | {"numpy", "onnx"})
BUDGETS = {
    "--version": HELP,
    "--help": HELP,
    "convert": Budget(740, ROOMS_OF_A_REWRITE, NEVER),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small model with a weight, a subgraph and a conditional list entry.

    The lists have been parsed: the first process of all that reads them in a checkout does it.
    """
    load_lists()
    path = tmp_path_factory.mktemp("model") / "m.onnx"
    text = """<ir_version: 10, opset_import: ["" : 18]>
    g (float[1,2,4,2] x, bool c) => (float[1,2,8,4] y)
    <float[2,2] w = {1, 0, 0, 1}, float[4] scales = {1, 1, 2, 2}> {
      h = MatMul(x, w)
      i = If(c) <then_branch = then () => (float[1,2,4,2] a) { a = Relu(h) },
                 else_branch = other () => (float[1,2,4,2] b) { b = Exp(h) }>
      y = Resize<mode = "nearest">(i, , scales)
    }"""
    onnx.save(onnx.parser.parse_model(text), path)
    return path


@pytest.mark.parametrize("command", BUDGETS)
def test_a_command_imports_no_more_than_its_budget(
    command: str, model: Path, tmp_path: Path
) -> None:
    budget = BUDGETS[command]
    rest = [str(model), "-o", str(tmp_path / "out.onnx")] if command == "convert" else []
    done = subprocess.run(
        [sys.executable, "-P", "-c", SHOW, command, *rest],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = set(done.stdout.splitlines()[-1].split()[1:])
    own = {name for name in found if name.startswith("amp_rewrite.")} - LIGHT
    rooms = {name.split(".")[1] for name in own}
    assert rooms <= budget.rooms
    assert {name for name in found if name.partition(".")[0] in budget.without} == set()
    assert len(found) <= budget.modules


def test_a_program_that_only_names_the_package_imports_one_module_of_it() -> None:
    code = (
        "import sys, amp_rewrite; print(*(m for m in sys.modules if m.startswith('amp_rewrite')))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["amp_rewrite"]
