"""The loop of the programs that do one thing after another for a test (mutation_pool.py)."""

from __future__ import annotations

import gc
import json
import sys
import time
import traceback
from collections.abc import Callable


class BrokenLawError(Exception):
    """Something that must hold does not."""


def answer_lines(run: Callable[[str, int], str], before: Callable[[], None]) -> None:
    """Read lines "name seed" and answer each with a line of JSON: outcome, CPU seconds, trace."""
    for line in sys.stdin:
        gc.collect()  # what the last one left is not this one's
        before()
        name, seed = line.rstrip("\n").rsplit(" ", 1)
        start, trace = time.process_time(), ""  # a busy machine is nobody's fault
        try:
            outcome = run(name, int(seed))
        except BrokenLawError as error:
            outcome, trace = "broken", str(error)
        except BaseException:  # noqa: BLE001 whatever it is, it is the finding
            outcome, trace = "raised", traceback.format_exc()
        seconds = time.process_time() - start
        answer = {"outcome": outcome, "seconds": seconds, "trace": trace}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
