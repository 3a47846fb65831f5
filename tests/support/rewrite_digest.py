"""What rewrites write and report, recorded as digests: a change of any is seen, and on purpose.

rewrite_digest.json has, for the models of onnx's backend tests, a line for each precision and
operator: one digest behind the other, in the order of the cases. For the models of the corpus it
has a line each: the file's own sum, and the digests of FORMS. The cases, their order, and what
models are valid are those of one release of onnx; with another one nothing is compared.
`python tools/record_digest.py` records anew.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import warnings
import zlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, get_args

import onnx
from backend_cases import all_cases

import amp_rewrite as amp
from amp_rewrite.dtypes import Precision
from amp_rewrite.oplists import OpLists, load_lists

FILE = Path(__file__).with_suffix(".json")
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
FORMS = tuple(itertools.product(PRECISIONS, ("schema", "cuda")))
"""In what form a model of the corpus is rewritten: precision and target."""

HALF, WIDTH = 4, 8
"""Hex digits of the digest of the bytes, and of both: a change hides in one of 65,536."""

RECORD = "if that is on purpose: python tools/record_digest.py"


@cache
def recorded() -> dict[str, Any]:
    """Return what is recorded."""
    return json.loads(FILE.read_text("utf-8"))


def not_comparable() -> str | None:
    """Return why nothing can be compared here, or None."""
    if recorded()["onnx"] == onnx.__version__:
        return None
    return f"digests are those of onnx {recorded()['onnx']}; this is {onnx.__version__}"


def digest(content: Iterable[bytes], report: str) -> str:
    """Return the digest of a rewritten model's bytes, and behind it that of its report."""
    whole = hashlib.sha256()
    for part in content:
        whole.update(part)
    return whole.hexdigest()[:HALF] + hashlib.sha256(report.encode()).hexdigest()[:HALF]


def difference(name: str, before: str | None, now: str) -> str | None:
    """Return what of a rewrite is not as it was recorded, or None."""
    if before == now:
        return None
    if before is None:
        return f"{name}: not recorded"
    same = before[:HALF] == now[:HALF], before[HALF:] == now[HALF:]
    return f"{name}: {'bytes' if same[1] else 'report' if same[0] else 'bytes and report'}"


@cache
def lists_of(precision: str) -> OpLists:
    """Parse the built-in lists once, not for each of thousands of models."""
    return load_lists(None, precision=precision, target="cuda")


def rewrite_case(model: Any, precision: Precision) -> amp.RewriteResult:
    """Rewrite a model of the backend tests, in memory."""
    return amp.rewrite(model, precision=precision, target="schema", lists=lists_of(precision))


def digest_of_case(result: amp.RewriteResult) -> str:
    """Return the digest of a rewrite in memory."""
    content = amp.to_proto(result.model).SerializeToString(deterministic=True)
    return digest([content], result.report.to_json())


def group_of(case: Any) -> str:
    """Return the operator in whose line a case stands."""
    return case.model.graph.node[0].op_type


@cache
def digests_of_cases(precision: str) -> dict[str, str]:
    """Return what is recorded of the backend cases: name -> digest."""
    found: dict[str, str] = {}
    at: dict[str, int] = {}
    lines = recorded()["cases"][precision]
    for case in all_cases():
        group = group_of(case)
        start = at.get(group, 0)
        at[group] = start + WIDTH
        found[case.name] = lines.get(group, "")[start : start + WIDTH]
    return found


def save_form(source: Path, folder: Path, form: tuple[Precision, str]) -> str:
    """Rewrite a file as folder/rewritten.onnx; return the digest of what is in the folder then."""
    precision, target = form
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* inputs? of the model with a default", amp.AmpWarning)
        result = amp.rewrite(source, precision=precision, target=target)
    result.save(folder / "rewritten.onnx")
    files = sorted(folder.iterdir())
    return digest((path.read_bytes() for path in files), result.report.to_json())


def sum_of(source: Path) -> str:
    """Return what tells a model of the corpus from one that was made in another way."""
    return f"{zlib.crc32(source.read_bytes()):08x}"


def digests_of_model(name: str) -> tuple[str, dict[tuple[Precision, str], str]]:
    """Return what is recorded of a model of the corpus: its own sum, "" if nothing, and digests."""
    own, *forms = recorded()["corpus"].get(name, "").split() or [""]
    assert len(forms) in (0, len(FORMS))
    return own, dict(zip(FORMS, forms, strict=False))
