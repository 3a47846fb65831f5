"""Print the command in the N-th shell block of README.md, so that CI runs what users read.

python tools/readme_command.py 2
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"
_SHELL_BLOCK = re.compile(r"^```(?:sh|shell|bash|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def shell_blocks(text: str) -> list[str]:
    """Return the contents of the fenced shell blocks of a Markdown text, in order."""
    return [block.strip() for block in _SHELL_BLOCK.findall(text)]


def main(arguments: list[str]) -> int:
    """Print one block; return 2 if there is no such block."""
    blocks = shell_blocks(README.read_text("utf-8"))
    if len(arguments) != 1 or not arguments[0].isdigit():
        print("usage: readme_command.py N", file=sys.stderr)
        return 2
    number = int(arguments[0])
    if not 1 <= number <= len(blocks):
        print(f"{README.name} has {len(blocks)} shell blocks, no number {number}", file=sys.stderr)
        return 2
    print(blocks[number - 1])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
