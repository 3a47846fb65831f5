#!/usr/bin/env python3
"""Check op lists, and models against them: `amp-rewrite check-lists` without the installed command.

Usage: check_lists.py [LIST.yaml | MODEL.onnx]... [--model MODEL]... [--format text|json|github]

Exit status: 0 if everything holds, 1 if something does not, 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import sys

from amp_rewrite.oplists.list_check.check import check_lists


def main(arguments: list[str] | None = None) -> int:
    """Check and print; return the exit status."""
    parser = argparse.ArgumentParser(description="Check op lists, and models against them.")
    parser.add_argument("files", nargs="*", help="lists (the built-in ones by default) or models")
    parser.add_argument("--model", action="append", default=[], help="an ONNX model to check")
    parser.add_argument("--format", choices=("text", "json", "github"), default="text")
    options = parser.parse_args(arguments)
    report = check_lists(options.files or None, models=options.model)
    texts = {"text": report.to_text, "json": report.to_json, "github": report.to_github}
    text = texts[options.format]()
    if text:
        print(text)
    return report.exit_status


if __name__ == "__main__":
    sys.exit(main())
