"""What Python shows of any object that the package returns is one line, however much is in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import model_calls
import pytest
import training_calls

TABLE = {**training_calls.TABLE, **model_calls.TABLE}
WITHOUT = ("started", "restore", "read", "mpi")
"""What needs shards, or files that other calls write."""
LONGEST = 600


def own(found: Any) -> list[Any]:
    """Return the objects of the package among what a call returned."""
    items = found if type(found) in (list, tuple) else [found]
    return [item for item in items if type(item).__module__.startswith("amp_rewrite.")]


@pytest.mark.filterwarnings("ignore::amp_rewrite.errors.AmpWarning")
def test_whatever_a_call_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call of the tables works, too: test_wrong_arguments begins with them."""
    monkeypatch.chdir(tmp_path)
    shown: set[tuple[str, str]] = set()
    for name in TABLE.keys() - WITHOUT:
        function, known = TABLE[name]()
        shown |= {(type(item).__name__, repr(item)) for item in own(function(**known))}
    kinds = {kind for kind, _ in shown}
    assert {"RewriteResult", "Conversion", "TrainOp", "OpLists", "VerifyReport"} <= kinds
    assert [text for _, text in shown if "\n" in text or len(text) > LONGEST] == []
