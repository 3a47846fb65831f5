"""Garbage collection is paused while much is made, and goes on as before."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from amp_rewrite.graph.paused_gc import paused_gc

SCRIPT = """
import gc
from amp_rewrite.graph.paused_gc import paused_gc
if {frozen}:
    gc.freeze()
before = gc.get_freeze_count()
with paused_gc():
    assert not gc.isenabled()
    made = [[k] for k in range({count})]
assert gc.isenabled()
assert gc.get_freeze_count() == before
old = {{id(item) for item in gc.get_objects(generation=2)}}
print(all(id(item) in old for item in made))
"""


def test_it_is_on_again_after_an_error_and_stays_off_where_it_was_off() -> None:
    with pytest.raises(ValueError), paused_gc():  # noqa: PT011
        raise ValueError
    assert gc.isenabled()
    gc.disable()
    try:
        with paused_gc():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("count", "frozen", "old"),
    [(100_000, False, True), (1_000, False, False), (100_000, True, False)],
)
def test_many_new_objects_are_old_ones_at_once(count: int, frozen: bool, old: bool) -> None:
    script = SCRIPT.format(count=count, frozen=frozen)
    ran = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, check=True)
    assert ran.stdout.decode().strip() == str(old)
