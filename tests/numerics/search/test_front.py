"""The front from fast to exact, and what tune does with what rounding is estimated to bring."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hot_chains import chain, data
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.errors import GradientError, OptionError
from amp_rewrite.numerics.repaint.repaint import Repainter
from amp_rewrite.numerics.search.front import Estimates, front
from amp_rewrite.numerics.search.tolerance import Tolerance
from amp_rewrite.numerics.search.tune import tune
from amp_rewrite.rewriting.plan.options import RewriteOptions

TOLERANCE = Tolerance("max-relative", 0.01)
WIDTH, LAYERS = 256, 4
OPENVINO: dict[str, Any] = {"precision": "bfloat16", "target": "openvino"}


def layers(count: int = LAYERS) -> onnx.ModelProto:
    """Return products with residuals and normalizations between them, large enough to gain."""
    lines, value = [], "x"
    for i in range(count):
        lines.append(f"""[product{i}] p{i} = MatMul ({value}, w{i})
            [act{i}] a{i} = Tanh (p{i})
            [sum{i}] s{i} = Add ({value}, a{i})
            [norm{i}] n{i} = LayerNormalization (s{i}, gain)""")
        value = f"n{i}"
    model = parse(
        f"""<ir_version: 10, opset_import: ["": 22]>
        g (float[64, {WIDTH}] x) => (float[64, {WIDTH}] y) {{
        {" ".join(lines)} [last] y = MatMul ({value}, w0) }}"""
    )
    rng = np.random.default_rng(0)
    made = {f"w{i}": rng.standard_normal((WIDTH, WIDTH)) / 16 for i in range(count)}
    for name, array in {**made, "gain": np.ones(WIDTH)}.items():
        tensor = onnx.numpy_helper.from_array(array.astype(np.float32), name)
        model.graph.initializer.append(tensor)
    return model


def feeds(seed: int = 1) -> list[dict[str, Any]]:
    return [{"x": np.random.default_rng(seed).standard_normal((64, WIDTH)).astype(np.float32)}]


def test_a_front_goes_from_the_fastest_painting_to_float32() -> None:
    painter = Repainter.of(layers(), RewriteOptions(**OPENVINO))
    estimates = Estimates(painter, amp.rounding_errors(layers(), feeds(), "bfloat16"))
    runs: list[int] = []

    def run(low: frozenset[Any]) -> float:
        runs.append(len(low))
        return estimates.error(low)  # as good as a run here: it tells points apart

    fastest = estimates.error(painter.low_slots(painter.paint(())))
    points = front(painter, estimates, run, fastest / 2, lambda: False)
    assert 3 <= len(points) <= len(runs) <= 14
    saved, errors = [p.saved for p in points], [p.error for p in points]
    assert saved == sorted(saved, reverse=True)
    assert errors == sorted(errors, reverse=True)
    assert points[0].error == pytest.approx(fastest, rel=0.3)
    assert points[-1].saved == points[-1].error == 0
    assert len({p.kept for p in points}) == len(points)


def test_the_fastest_point_that_holds_is_kept() -> None:
    plain = tune(layers(), feeds(), Tolerance("max-relative", 1.0), **OPENVINO)
    limit = Tolerance("max-relative", plain.loss / 2)
    found = tune(layers(), feeds(), limit, estimate=amp.rounding_errors, **OPENVINO)
    assert found.kind == "fastest"
    assert found.is_settled
    assert found.unmet is None
    assert 0 < found.loss <= limit.limit < plain.loss
    holding = [point for point in found.front if point.loss <= limit.limit]
    assert found.keep == holding[0].kept
    assert 0 < len(found.keep) < 4 * LAYERS
    assert found.trials <= 16
    assert all("it changes the outputs by about " in rule.why for rule in found.rules)
    assert "the fastest set" in found.to_yaml()


def test_where_no_point_but_float32_holds_the_search_goes_on() -> None:
    limit = Tolerance("max-relative", 1e-3)
    found = tune(layers(2), feeds(), limit, estimate=amp.rounding_errors, **OPENVINO)
    assert found.front == ()
    assert found.minimal
    assert found.loss <= limit.limit


def test_the_estimates_rank_the_nodes_where_no_costs_are_known() -> None:
    given: dict[str, Any] = {"target": "schema"}
    found = tune(chain((2, 7)), data(), TOLERANCE, estimate=amp.rounding_errors, **given)
    assert set(found.keep) == {"n2", "n3", "n7", "n8"}
    assert found.minimal
    assert found.front == ()


def test_where_nothing_can_be_estimated_runs_rank() -> None:
    def refuse(*_: object) -> Any:
        raise GradientError("no gradients here")

    found = tune(chain((4,)), data(), TOLERANCE, target="schema", estimate=refuse)
    assert found.keep == tune(chain((4,)), data(), TOLERANCE, target="schema").keep


def test_an_estimate_is_a_mapping() -> None:
    with pytest.raises(OptionError, match="what estimate returns must be a mapping"):
        tune(chain((4,)), data(), TOLERANCE, target="schema", estimate=lambda *_: [])  # type: ignore[arg-type,return-value]


def test_convert_takes_the_fastest_painting_that_holds() -> None:
    first = amp.convert(layers(), feeds(), rtol=1.0, **OPENVINO)
    error = max(output.scaled_error for output in first.verification.outputs)
    made = amp.convert(layers(), feeds(), rtol=error / 2, estimate=amp.rounding_errors, **OPENVINO)
    assert made.writable
    assert made.tuning is not None
    assert made.tuning.kind == "fastest"
    assert made.result.changed


def test_convert_searches_again_where_the_file_is_further_off_than_its_trial() -> None:
    def errors(seed: int) -> tuple[list[dict[str, Any]], float, float]:
        data = feeds(seed)
        loose = amp.convert(layers(), data, rtol=1.0, **OPENVINO)
        written = max(output.scaled_error for output in loose.verification.outputs)
        return data, tune(layers(), data, Tolerance("max-relative", 1.0), **OPENVINO).loss, written

    # On half of such data the file is further off; on which, the last bits of sums decide.
    found = map(errors, range(1, 13))
    data, trial, written = next(each for each in found if each[1] < 0.99 * each[2])
    rtol = (trial + written) / 2  # the trial of what the lists alone make holds, the file does not
    made = amp.convert(layers(), data, rtol=rtol, estimate=amp.rounding_errors, **OPENVINO)
    assert made.writable
    assert made.tuning is not None
    assert made.tuning.keep
