"""The lines of each room: docs/architecture.md promises at most so many, and they stay promised.

A room may grow over its first number only together with a line in CHANGELOG.md that names the room
and the new number, and says what users get for it: "`graph/` has 9,200 lines now, for ...".
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from house import FLOORS, MODULES, PARTS, part_of

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| `([a-z]+)/?` \| ([0-9,]+) \|", re.MULTILINE)
ROOMS = [room for room in FLOORS if room != "amp_rewrite"]  # which is the names alone
SLACK = 1.03
"""By how much a room's number may exceed its lines: a room that shrinks lowers its number."""

FIRST = {
    "ground": 1_740,
    "graph": 7_430,
    "values": 5_920,
    "runtimes": 1_960,
    "kernels": 690,
    "oplists": 1_950,
    "rewriting": 14_780,
    "grad": 5_670,
    "numerics": 14_190,
    "page": 690,
    "training": 15_300,
    "loop": 1_690,
    "cli": 2_890,
}
"""The numbers with which the promise began, after what did not pay was taken out."""


def promised() -> dict[str, int]:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    return {room: int(number.replace(",", "")) for room, number in ROW.findall(page)}


def lines_of_rooms() -> Counter[str]:
    lines: Counter[str] = Counter()
    for module, path in MODULES.items():
        room = PARTS.get(part_of(module), "amp_rewrite")
        lines[room] += len(path.read_bytes().splitlines())
    return lines


def test_every_room_promises_a_number_of_lines():
    assert promised().keys() == FIRST.keys() == {*ROOMS}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_has_no_more_lines_than_it_promises_and_no_room_to_spare(room: str):
    lines, number = lines_of_rooms()[room], promised()[room]
    assert lines <= number <= max(lines * SLACK, lines + 20)


@pytest.mark.parametrize("room", ROOMS)
def test_a_number_is_raised_only_for_something_that_users_get(room: str):
    number = promised()[room]
    told = re.search(rf"`{room}/?` has {number:,} lines now, for \w+", changelog())
    assert number <= FIRST[room] or told


def changelog() -> str:
    return " ".join((ROOT / "CHANGELOG.md").read_text("utf-8").split())
