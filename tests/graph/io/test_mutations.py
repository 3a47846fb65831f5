"""Mutants of whole models on their way from a file to a rewritten one: only AmpError comes out.

Each runs in a process that may take 10 s and 1 GiB for it, and whose end is noticed.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import cycle, islice
from pathlib import Path

import mutation_models
import pytest
from mutation_pool import outcomes

LEAST = 0.1
"""The share of mutants that must be accepted, and refused, for the mutations to mean anything."""


def check(names: Iterable[str], seeds: range, folder: Path) -> None:
    """Run as many mutants as there are seeds, of each model in turn."""
    found = list(outcomes(zip(islice(cycle(names), len(seeds)), seeds, strict=True), folder))
    faults = [str(outcome) for outcome in found if outcome.is_fault]
    assert not faults, "\n".join([f"{len(faults)} faults", *faults[:10]])
    counts = Counter(outcome.outcome for outcome in found)
    assert min(counts["accepted"], counts["refused"]) > LEAST * len(seeds), counts


def test_mutants_of_small_models_give_nothing_but_amp_errors(tmp_path):
    check(mutation_models.SMALL, range(75), tmp_path)


@pytest.mark.slow
def test_fifty_thousand_mutants_give_nothing_but_amp_errors(tmp_path):
    check(mutation_models.NAMES, range(1_000, 51_000), tmp_path)
