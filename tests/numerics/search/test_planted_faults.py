"""Known overflows and underflows: localise names them, calibrate and tune repair them."""

import itertools
import math

import numpy as np
import pytest
from planted_faults import FAULTS

import amp_rewrite as amp
from amp_rewrite.numerics.emulate import evaluate
from amp_rewrite.numerics.ranges.calibrate import calibrate
from amp_rewrite.numerics.search.localise import localise
from amp_rewrite.numerics.search.tolerance import Tolerance
from amp_rewrite.numerics.search.tune import tune

TOLERANCE = Tolerance("max-relative", 0.02)
each_fault = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)


def low_nodes(result):
    graph = result.context.type_graph
    return sorted({graph.node_name(vertex) for vertex in result.painting.allowed()})


def loss(fault, keep=(), lists=None):
    """Run the rewritten model through emulate/: nothing of the search's own machinery.

    An infinity inside the main graph counts as infinite loss, absorbed or not.
    """
    known = set(low_nodes(amp.rewrite(fault.model, target="schema")))
    patterns = [name for name in keep if name in known]
    result = amp.rewrite(fault.model, target="schema", lists=lists, deny_nodes=patterns)
    inside = [o for n in fault.model.graph.node for o in n.output]
    worst = 0.0
    for feeds in fault.data:
        reference = evaluate(fault.model, feeds, outputs=inside)
        found = evaluate(result.model, feeds, outputs=inside)
        worst = max(worst, TOLERANCE.loss(reference["y"], found["y"]))
        for name, array in found.items():
            if np.isfinite(reference[name]).all() and not np.isfinite(array).all():
                worst = math.inf
    return worst


def test_there_are_twelve_faults_at_least():
    assert len({fault.name for fault in FAULTS}) >= 12


@each_fault
def test_the_fault_shows_with_the_built_in_lists(fault):
    assert loss(fault) > TOLERANCE.limit


@each_fault
def test_localise_names_the_node(fault):
    mixed = amp.rewrite(fault.model, target="schema").model
    found = localise(fault.model, mixed, fault.data)
    assert not found.holds
    assert found.first is not None
    assert found.first.node in fault.culprits


@each_fault
def test_calibrate_repairs_the_model(fault, tmp_path):
    calibration = calibrate(fault.model, fault.data, target="schema")
    assert set(fault.culprits) & set(calibration.nodes)
    calibration.save(tmp_path / "overlay.yaml")
    assert loss(fault, lists=str(tmp_path / "overlay.yaml")) <= TOLERANCE.limit


@pytest.mark.share(7)
@each_fault
def test_tune_finds_a_smallest_set(fault):
    tuning = tune(fault.model, fault.data, TOLERANCE, target="schema")
    assert tuning.minimal
    assert tuning.smallest
    assert loss(fault, tuning.keep) <= TOLERANCE.limit
    names = low_nodes(amp.rewrite(fault.model, target="schema"))
    smaller = itertools.chain.from_iterable(
        itertools.combinations(names, k) for k in range(len(tuning.keep))
    )
    assert not [keep for keep in smaller if loss(fault, keep) <= TOLERANCE.limit]
