"""Random models as files hold them, through every command that writes a model: the laws hold.

The fast suite draws other models every day. A seed that fails is told; it goes into FOUND.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import cycle, islice
from pathlib import Path

import mutation_pool
import onnx
import pytest
import wild_laws
from thinned import every
from wild_models.generate import generate

WORKER = Path(wild_laws.__file__).with_name("wild_worker.py")
FAST, SLOW = 14, 3000

FOUND: tuple[tuple[str, int], ...] = (
    ("convert", 768),
    ("convert for openvino", 193),
    ("raise opset", 1403),
    *(("repair", seed) for seed in (77, 220, 2026112512, 2026112637)),
)
"""Jobs and seeds that have failed once."""


def check(jobs: Iterable[tuple[str, int]], folder: Path) -> None:
    found = mutation_pool.outcomes_of(WORKER, jobs, folder)
    faults = [f"job {o.model!r}, seed {o.seed}: {o}" for o in found if o.is_fault]
    assert not faults, "\n".join([f"{len(faults)} faults", *faults[:10]])


def test_what_commands_make_of_the_models_of_the_day_is_right(tmp_path: Path) -> None:
    first = int(datetime.now(UTC).strftime("%Y%m%d")) * 100
    check(
        zip(islice(cycle(wild_laws.JOBS), FAST), range(first, first + FAST), strict=True), tmp_path
    )


@pytest.mark.skipif(not FOUND, reason="none has failed")
@pytest.mark.parametrize("part", every(range(3), 3))
def test_what_failed_once_is_right(part: int, tmp_path: Path) -> None:
    check(FOUND[part::3], tmp_path)


@pytest.mark.slow
def test_what_commands_make_of_three_thousand_models_is_right(tmp_path: Path) -> None:
    check((("all", seed) for seed in range(SLOW)), tmp_path)


def test_the_models_have_what_files_have() -> None:
    models = [generate(seed) for seed in range(60)]
    nodes = [n for m in models for n in m.model.graph.node]
    operators = Counter(node.op_type for node in nodes)
    assert len(operators) >= 90
    assert {"If", "Loop", "Scan", "SequenceAt", "Conv", "LSTM", "Constant"} <= operators.keys()
    assert {m.model.opset_import[0].version for m in models} >= {13, 17, 21, 25}
    assert any("" in node.input for node in nodes)
    assert sum(bool(m.model.functions) for m in models) > 2
    assert sum(m.model != m.sorted for m in models) > 1
    assert sum(len(m.model.graph.output) > 1 for m in models) > 15
    fed = [{v.name for v in m.model.graph.input} for m in models]
    held = [{t.name for t in m.model.graph.initializer} for m in models]
    assert any(a & b for a, b in zip(fed, held, strict=True))


def test_the_same_seed_makes_the_same_valid_model() -> None:
    for seed in range(20):
        made, again = generate(seed), generate(seed)
        assert made.model.SerializeToString() == again.model.SerializeToString()
        onnx.checker.check_model(made.sorted, full_check=True)
