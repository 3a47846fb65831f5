"""Does one thing after another with wild models, as a process of its own: a crash ends no test.

Reads lines "job seed" and answers each with a line of JSON, as mutation_worker.py does. "all" does
every job with the model.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import logging
import random
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

import wild_laws
from wild_models.generate import generate

import amp_rewrite as amp


def run(job: str, seed: int, folder: Path) -> str:
    """Do a job, or all; return "accepted".

    Raises:
        BrokenLawError: A law does not hold.
    """
    source = wild_laws.write(generate(seed), folder)
    if source.fault:
        raise wild_laws.BrokenLawError(f"the generator's model is not valid: {source.fault}")
    for name in wild_laws.JOBS if job == "all" else (job,):
        try:
            wild_laws.JOBS[name](source, random.Random(f"{name} {seed}"))
        except amp.AmpError as error:
            raise wild_laws.BrokenLawError(f"{name} refuses: {error}") from error
        except wild_laws.BrokenLawError as error:
            raise wild_laws.BrokenLawError(f"{name}: {error}") from error
    return "accepted"


def main(models: Path) -> None:
    faulthandler.enable()
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", amp.AmpWarning)
    logging.disable()
    with tempfile.TemporaryDirectory(dir=models) as text:
        folder = Path(text)
        for line in sys.stdin:
            job, seed = line.rstrip("\n").rsplit(" ", 1)
            start, trace = time.process_time(), ""
            try:
                outcome = run(job, int(seed), folder)
            except wild_laws.BrokenLawError as error:
                outcome, trace = "broken", str(error)
            except BaseException:  # noqa: BLE001 whatever it is, it is the finding
                outcome, trace = "raised", traceback.format_exc()
            seconds = time.process_time() - start
            answer = {"outcome": outcome, "seconds": seconds, "trace": trace}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
            gc.collect()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
