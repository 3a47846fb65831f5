"""Write docs/api.md: the public names with their docstrings, read from the source by griffe.

python tools/make_api_docs.py             writes the page
python tools/make_api_docs.py --check     exits with 1 if the page is not what would be written

Needs griffe2md, of the extras `test` and `dev`. The result depends on the source and on griffe2md's
version alone, which pyproject.toml therefore pins.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from inspect import isclass, isfunction, ismodule
from pathlib import Path
from typing import Any

import griffe
from griffe2md import ConfigDict, default_config, prepare_context, prepare_env

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "api.md"
PACKAGE = "amp_rewrite"
MODULES = (
    PACKAGE,
    f"{PACKAGE}.rules",
    f"{PACKAGE}.losses",
    f"{PACKAGE}.optimizers",
    f"{PACKAGE}.loss_scaling",
    f"{PACKAGE}.distributed",
    f"{PACKAGE}.callbacks",
)
"""The public modules; the page has a chapter for each."""

HEAD = """\
# API reference

Which public names are there, and what does each take, return and raise? Guides with examples:
[mixed precision](mixed_precision.md), [training](training.md), [several processes](shards.md).
Second names, and members that are there for programs of TensorFlow, have
[a page of their own](from_tensorflow.md).
The command line says the same of its options: `amp-rewrite COMMAND --help`.

For people who call the package from Python: begin with a guide, and look names up here.

Examples follow on `import numpy as np` and `import amp_rewrite as amp`. Their model.onnx has an
input `x` (float32, (N, 8)), an output `logits` (float32, (N, 4)), the weights `w1` and `w2`, and
the nodes `fc1`, `act` (Relu), `exp` and `fc2`.

Made from the docstrings by `python tools/make_api_docs.py`; not edited by hand.
"""

TENSORFLOW = ("add_slot", "add_weight", "get_updates", "lr", "use_locking")
"""Members that docs/from_tensorflow.md describes instead."""

WIDTH = 100
CONFIG: ConfigDict = {
    **default_config,
    "heading_level": 3,
    "members_order": "source",
    "inherited_members": ["lines", "to_dict", "to_json", "to_text"],
    "summary": False,
    "show_object_full_path": False,
    "show_root_members_full_path": False,
    "show_if_no_docstring": False,
    # Anything longer would be wrapped by black or ruff, whichever happens to be installed.
    "line_length": 100_000,
    "filters": ["!^_", *(f"!^{name}$" for name in TENSORFLOW)],
}

TEMPLATES = prepare_env()

_CROSS_REFERENCE = re.compile(r"\[([^\[\]]*)\]\(#[^()]*\)")
_SIGNATURE = re.compile(r"^```python\n(.*)\n```$", re.MULTILINE)


def page() -> str:
    """Return the whole page."""
    source = griffe.load(
        PACKAGE,
        search_paths=[str(ROOT)],
        docstring_parser="google",
        docstring_options={"ignore_init_summary": True},
    )
    return "\n".join((HEAD, *(chapter(source, name) for name in MODULES))).rstrip() + "\n"


def chapter(source: griffe.Object | griffe.Alias, module_name: str) -> str:
    """Return one module's names: its classes and functions, then its values.

    The second names that docs/from_tensorflow.md has are left to it.
    """
    module = import_module(module_name)
    lines = [f"## {module_name}", "", (module.__doc__ or "").strip(), ""]
    rest: list[str] = []
    for name, found in public_members(module):
        elsewhere = home(name, found, module_name)
        if name in second_names():
            continue
        if elsewhere is not None:
            rest.append(f"- `{name}`: {elsewhere}")
        else:
            lines += [f"### `{module_name}.{name}`", "", described(source, found), ""]
    return "\n".join([*lines, *rest, ""] if rest else lines)


@cache
def second_names() -> frozenset[str]:
    """Return the names that docs/from_tensorflow.md says what they are the second names of."""
    text = (ROOT / "docs" / "from_tensorflow.md").read_text("utf-8")
    section = text.partition("## Second names")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    return frozenset(re.findall(r"(\w+)`", "".join(cells))) - {"SGD"}


def public_members(module: Any) -> Iterator[tuple[str, Any]]:
    """Yield each public name of a module that is not a module, with what it denotes."""
    for name in sorted(module.__all__, key=str.lower):
        found = getattr(module, name)
        if not ismodule(found):
            yield name, found


def home(name: str, found: Any, module_name: str) -> str | None:
    """Return where else a name is described, or what it is; None if it is described here."""
    if not (isclass(found) or isfunction(found)):
        return f"`{found!r}`"
    described_as = f"{module_name}.{name}"
    for other in map(import_module, MODULES):
        if found.__name__ in other.__all__ and getattr(other, found.__name__) is found:
            described_as = f"{other.__name__}.{found.__name__}"
    if described_as == f"{module_name}.{name}":
        return None
    anchor = described_as.replace(".", "").lower()
    return f"[`{described_as}`](#{anchor})"


def described(source: griffe.Object | griffe.Alias, found: Any) -> str:
    """Return the signature and the docstring of a class or function, and of a class's members."""
    path = f"{found.__module__}.{found.__qualname__}".removeprefix(f"{PACKAGE}.")
    target = source[path]
    template = TEMPLATES.get_template(f"{target.kind.value}.md.jinja")
    config: ConfigDict = {**CONFIG, "inherited_members": inherited(found) or False}
    _, _, text = template.render(**prepare_context(target, config)).partition("\n")  # its heading
    while _CROSS_REFERENCE.search(text):  # griffe2md links to names that this page does not have
        text = _CROSS_REFERENCE.sub(r"\1", text)
    text = text.replace("- ****", r"- **\*\*")  # **keywords in bold
    return _SIGNATURE.sub(wrapped, text).strip()


def inherited(found: Any) -> list[str]:
    """Return the public names that a class has from classes of the package that are not public.

    What a public class among its bases has from them is described there.
    """
    public = {
        value
        for name in MODULES
        for _, value in public_members(import_module(name))
        if isclass(value)
    }
    bases = found.__mro__[1:] if isclass(found) else ()
    described_there = {kind for base in bases if base in public for kind in base.__mro__}
    own = [base for base in bases if base not in described_there]
    hidden = [base for base in own if base.__module__.startswith(f"{PACKAGE}.")]
    names = [name for base in hidden for name in vars(base) if not name.startswith("_")]
    return [name for name in names if name not in TENSORFLOW]


def wrapped(block: re.Match[str]) -> str:
    """Return the code block of a signature with lines of at most WIDTH characters."""
    lines = textwrap.wrap(block[1], WIDTH, subsequent_indent="    ", break_long_words=False)
    return "\n".join(("```text", *lines, "```"))


def main(arguments: list[str] | None = None) -> int:
    """Write or check the page; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args(arguments)
    text = page()
    if not options.check:
        PAGE.write_text(text, "utf-8")
        return 0
    if PAGE.read_text("utf-8") == text:
        return 0
    print(f"{PAGE.relative_to(ROOT)} is not current: python {Path(__file__).name}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
