"""Mutants of models, given to every command: a result or one line, whole files, inputs untouched.

Each command runs in a process of its own, whose end is noticed.
"""

from __future__ import annotations

from collections import Counter
from itertools import cycle, islice
from pathlib import Path

import mutation_models
import mutation_pool
import pytest
from command_worker import COMMANDS

WORKER = Path(mutation_pool.__file__).with_name("command_worker.py")
SLOW = 1000


def check(seeds: range, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutation_pool, "WORKER", WORKER)
    names = (name for name in cycle(mutation_models.SMALL) for _ in COMMANDS)
    mutants = zip(islice(names, len(seeds)), seeds, strict=True)
    found = list(mutation_pool.outcomes(mutants, folder))
    faults = [f"{list(COMMANDS)[o.seed % len(COMMANDS)]}: {o}" for o in found if o.is_fault]
    assert not faults, "\n".join([f"{len(faults)} faults", *faults[:10]])
    counts = Counter(outcome.outcome for outcome in found)
    assert min(counts["accepted"], counts["refused"]) > len(seeds) / 20, counts


@pytest.mark.slow
def test_a_thousand_mutants_end_in_a_result_or_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(range(SLOW), tmp_path, monkeypatch)
