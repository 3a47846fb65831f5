"""Write what follows from the options of a rewrite: keyword arguments and documentation.

python tools/make_option_table.py             writes them
python tools/make_option_table.py --check     exits with 1 if they are not what would be written

An option is a field of RewriteOptions, in amp_rewrite/rewriting/plan/options.py. From it follow the
TypedDicts at the end of that file, which type checkers read, and the tables of options in
docs/mixed_precision.md. Options that `convert` alone has are parameters of its function.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from amp_rewrite.cli.command_table import command
from amp_rewrite.rewriting.plan.options import COMMAND_LINE, OPTIONS, Declared

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "amp_rewrite" / "rewriting" / "plan" / "options.py"
PAGE = ROOT / "docs" / "mixed_precision.md"
NOT_OF_STEPS = ("precision", "only")
"""What a step has of its own, and what it does not have."""


def keywords(text: str) -> str:
    """Return the file of the options with its TypedDicts made anew."""
    types = _types_of(text)
    step = [f"{name}: {type_}" for name, type_ in types.items() if name not in NOT_OF_STEPS]
    rest = ["precision: PrecisionLike | Literal['float32']", f"only: {types['only']}"]
    rest[0] = "precision: PrecisionLike"
    lines = [
        *("", "", "class StepChanges(TypedDict, total=False):"),
        '    """The options of a rewrite as keyword arguments, without the precision."""',
        *("", *(f"    {line}" for line in step), "", ""),
        "class Changes(StepChanges, total=False):",
        '    """The options of a rewrite as keyword arguments."""',
        *("", *(f"    {line}" for line in rest), "", ""),
    ]
    return _replaced(text, "# made by tools/make_option_table.py: keywords\n", "# end\n", lines)


def _types_of(text: str) -> dict[str, str]:
    """Return the options' types as their declarations spell them."""
    classes = (node for node in ast.parse(text).body if isinstance(node, ast.ClassDef))
    options = next(node for node in classes if node.name == "RewriteOptions")
    types: dict[str, str] = {}
    for line in options.body:
        if isinstance(line, ast.AnnAssign):
            types[ast.unparse(line.target)] = ast.unparse(line.annotation)
    return types


def page(text: str) -> str:
    """Return docs/mixed_precision.md with its tables made anew."""
    for name, lines in {"options": options(), "convert": of_convert()}.items():
        begin = f"<!-- made by tools/make_option_table.py: {name} -->\n"
        text = _replaced(text, begin, "<!-- end -->\n", lines)
    return text


def options() -> Iterator[str]:
    """Yield the lines of the table of what all rewrites have."""
    yield from ("| option | in Python | meaning | default | not for |", "|---|---|---|---|---|")
    for group in dict.fromkeys(option.shown.group for option in OPTIONS):
        for option in OPTIONS:
            if option.shown.group == group:
                meaning = f"{option.shown.help} {option.shown.more}".rstrip()
                cells = [_flags(option), f"`{option.name}`", meaning, _default(option)]
                cells.append(", ".join(f"`{name}`" for name in option.shown.without))
                yield _row(cells)


def _flags(option: Declared) -> str:
    """Return how an option is spelled on the command line."""
    if option not in COMMAND_LINE:
        return ""
    name = option.name.replace("_", "-")
    switch = f"`--{name}` / `--no-{name}`" if option.default else f"`--{name}`"
    if option.type is bool:
        return switch
    return f"{switch}, `{option.flag}`" if option.shown.names else f"`{option.flag}`"


def _default(option: Declared) -> str:
    if option.shown.default is not None:
        return option.shown.default
    if isinstance(option.default, bool):
        return "on" if option.default else "off"
    return f"`{option.default}`" if option.default else ""


def of_convert() -> Iterator[str]:
    """Yield the lines of the table of what `convert` has beside them."""
    yield from ("| option | meaning | default |", "|---|---|---|")
    names = {option.name for option in OPTIONS} | {"keep_io_types_names"}
    for each in command("convert").params:
        if each.param_type_name != "option" or each.name in names:
            continue
        flags = ", ".join(f"`{flag}`" for flag in sorted(each.opts, key=len, reverse=True))
        flags += "".join(f" / `{flag}`" for flag in each.secondary_opts)
        default = f"`{each.default}`" if isinstance(each.default, str) else ""
        yield _row([flags, each.help, default])


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |".replace("  ", " ")


def _replaced(text: str, begin: str, end: str, lines: Any) -> str:
    made = begin + "".join(f"{line}\n" for line in lines) + end
    pattern = f"{re.escape(begin)}.*?{re.escape(end)}"
    text, count = re.subn(pattern, lambda _: made, text, flags=re.DOTALL)
    if count != 1:
        raise SystemExit(f"{count} parts begin with {begin.strip()}, not one")
    return text


def stale(*, write: bool) -> list[Path]:
    """Return the files that are not what would be written, and write them if that is asked."""
    changed: list[Path] = []
    for path, make in ((PROGRAM, keywords), (PAGE, page)):
        before = path.read_text("utf-8")
        after = make(before)
        if before != after:
            changed.append(path)
            if write:
                path.write_text(after, "utf-8")
    return changed


def main() -> None:
    """Write or check both files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if stale")
    check = parser.parse_args().check
    found = stale(write=not check)
    if check and found:
        raise SystemExit(f"{found[0]}: stale; run python tools/make_option_table.py")


if __name__ == "__main__":
    sys.exit(main())
