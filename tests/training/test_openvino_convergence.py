"""Trainings in bfloat16 that OpenVINO computes as such learn what they learn in float32."""

import bench_convergence as convergence
import numpy as np
import pytest

pytestmark = [
    pytest.mark.openvino,
    pytest.mark.usefixtures("openvino", "bfloat16_processor"),
]
SEEDS = (0, 1, 2)


@pytest.fixture(autouse=True)
def data() -> None:
    pytest.importorskip("sklearn")


def test_the_loss_curve_of_a_recipe_is_that_of_float32_within_1_percent() -> None:
    exact, low = (convergence.resnet(precision, 60) for precision in convergence.PRECISIONS)
    assert low.converted == 1
    assert (low.losses != exact.losses).any(), "the products are rounded"
    assert exact.losses[-10:].mean() < 0.9 * exact.losses[0]
    assert convergence.apart(low.losses, exact.losses) < 0.01


@pytest.mark.slow
def test_the_classifier_of_sequences_recognises_what_it_does_in_float32() -> None:
    exact, low = (convergence.bert(precision) for precision in convergence.PRECISIONS)
    assert low.converted == 1
    assert convergence.apart(low.losses, exact.losses) < 0.03
    assert abs(low.accuracy - exact.accuracy) < 0.02


@pytest.mark.slow
@pytest.mark.parametrize("network", convergence.DIGITS)
def test_accuracies_on_digits_are_within_the_spread_of_seeds(network: str) -> None:
    runs = {
        precision: [convergence.digits(network, precision, seed) for seed in SEEDS]
        for precision in convergence.PRECISIONS
    }
    exact, low = ([run.accuracy for run in runs[p]] for p in convergence.PRECISIONS)
    assert {run.converted for run in runs["bfloat16"]} == {1}
    one = 1 / 359  # of the examples held out
    assert min(exact) > 0.96
    assert min(exact) - one <= np.mean(low) <= max(exact) + one


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:a float16 step without a loss scale")
def test_what_needs_a_loss_scale_in_float16_needs_none_in_bfloat16() -> None:
    left = {curve: convergence.remaining(curve) for curve in convergence.UNDERFLOWING}
    exact, bare, scaled, low = left.values()
    assert bare > 0.8, "gradients underflow"
    assert scaled < 0.4
    assert low < 0.4
    assert exact < 0.4
