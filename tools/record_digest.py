#!/usr/bin/env python3
"""Record what rewrites write and report now, in tests/support/rewrite_digest.json.

python tools/record_digest.py     all of it: takes two minutes, and the corpus

Tests compare with it (tests/corpus). The corpus is where tests find it: in the folder that
AMP_CORPUS names, or in .cache/corpus. A model that is not there keeps its line.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import onnx

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "tools" / "corpus")]

import catalog  # noqa: E402 from the folders above
import rewrite_digest as digests  # noqa: E402

CORPUS = Path(os.environ.get("AMP_CORPUS", ROOT / ".cache" / "corpus"))


def cases() -> dict[str, dict[str, str]]:
    """Return precision -> operator -> the digests of its cases."""
    found: dict[str, dict[str, str]] = {}
    for precision in digests.PRECISIONS:
        lines = found.setdefault(precision, {})
        for case in digests.all_cases():
            result = digests.rewrite_case(case.model, precision)
            group = digests.group_of(case)
            lines[group] = lines.get(group, "") + digests.digest_of_case(result)
    return found


def line_of(source: Path) -> str:
    """Return the line of a model of the corpus."""
    words = [digests.sum_of(source)]
    for form in digests.FORMS:
        with tempfile.TemporaryDirectory() as folder:
            words.append(digests.save_form(source, Path(folder), form))
    return " ".join(words)


def main() -> int:
    """Write the file; return the exit status."""
    before: dict[str, Any] = digests.recorded() if digests.FILE.exists() else {"corpus": {}}
    corpus: dict[str, str] = {}
    missing: list[str] = []
    for name in sorted(catalog.REAL):
        source = CORPUS / "models" / f"{name}.onnx"
        if source.exists():
            corpus[name] = line_of(source)
        else:
            missing.append(name)
            corpus |= {name: before["corpus"][name]} if name in before["corpus"] else {}
    record = {"onnx": onnx.__version__, "cases": cases(), "corpus": corpus}
    digests.FILE.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", "utf-8")
    if missing:
        print(f"not in {CORPUS}, left as they were: {', '.join(missing)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
