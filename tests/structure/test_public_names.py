"""The names of the package: each is there when it is asked for, and none is in a module's way."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import jedi  # pyright: ignore[reportMissingTypeStubs] with IPython, for notebooks
import pytest

import amp_rewrite as amp

PACKAGE = Path(amp.__file__).parent
NAMES: list[str] = vars(amp)["__all__"]


def declared() -> dict[str, str]:
    """Return the names that type checkers know -> the modules that these import them from."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text("utf-8"))
    imports = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    own = [n for n in imports if str(n.module).startswith("amp_rewrite")]
    return {a.asname: str(n.module) for n in own for a in n.names if a.asname is not None}


def test_type_checkers_know_the_names_that_there_are() -> None:
    assert sorted(declared()) == NAMES


@pytest.mark.parametrize(("name", "module"), declared().items())
def test_a_name_denotes_what_type_checkers_take_it_for(name: str, module: str) -> None:
    assert getattr(amp, name) is getattr(import_module(module), name)


def test_the_names_are_listed_and_others_are_refused() -> None:
    assert [name for name in dir(amp) if not name.startswith("__")] == [
        name for name in NAMES if not name.startswith("__")
    ]
    unknown: Any = amp
    with pytest.raises(AttributeError, match="module 'amp_rewrite' has no attribute 'nothing'"):
        unknown.nothing  # noqa: B018


COMPLETED = {
    'amp.rewrite("m.onnx", prec': "precision=",
    'amp.rewrite("m.onnx", keep_io': "keep_io_types=",
    'amp.convert("m.onnx", stre': "stress=",
    'amp.convert("m.onnx", prec': "precision=",
    'amp.calibrate("m.onnx", data, deny_n': "deny_nodes=",
    'amp.tune("m.onnx", data, targ': "target=",
    'amp.error_budget("m.onnx", data, stri': "strict=",
    "amp.build_step(op, loss_s": "",
    "amp.build_step(op, deny_n": "deny_nodes=",
}


@pytest.mark.share(5, each="typed")
@pytest.mark.parametrize("typed", COMPLETED)
@pytest.mark.parametrize("place", ["a file", "a notebook"])
def test_the_names_of_options_are_completed(typed: str, place: str) -> None:
    if place == "a file":
        found = jedi.Script(f"import amp_rewrite as amp\n{typed}").complete()
    else:
        found = jedi.Interpreter(typed, [{"amp": amp}]).complete()
    assert [c.name for c in found] == list(filter(None, [COMPLETED[typed]]))


def test_all_of_them_can_be_imported_at_once() -> None:
    space: dict[str, Any] = {}
    exec("from amp_rewrite import *", space)
    assert set(NAMES) <= set(space)


@pytest.mark.parametrize("name", NAMES)
def test_a_module_has_the_name_of_nothing_else(name: str) -> None:
    is_module = (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()
    assert isinstance(getattr(amp, name), ModuleType) == is_module


AFTER_ALL_MODULES = """
import pkgutil
from importlib import import_module
import amp_rewrite as amp
for module in pkgutil.walk_packages(amp.__path__, "amp_rewrite."):
    if not module.name.endswith("__main__"):
        import_module(module.name)
print(*(f"{name}={type(getattr(amp, name)).__name__}" for name in amp.__all__))
"""


def test_modules_that_are_imported_first_hide_no_name() -> None:
    command = [sys.executable, "-P", "-c", AFTER_ALL_MODULES]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    kinds = dict(word.split("=") for word in done.stdout.split())
    assert kinds == {name: type(getattr(amp, name)).__name__ for name in NAMES}
