"""Connected regions are those that networkx finds."""

import networkx as nx
import numpy as np
import pytest

from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.rewriting.paint.region_costs import connected_regions


@pytest.mark.parametrize("seed", range(20))
def test_regions_are_the_connected_components(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n_vertices = int(rng.integers(1, 60))
    edges = rng.integers(0, n_vertices, (int(rng.integers(0, 80)), 2))
    inside = rng.random(n_vertices) < 0.8
    graph = nx.Graph()
    graph.add_nodes_from(np.flatnonzero(inside).tolist())
    graph.add_edges_from((a, b) for a, b in edges.tolist() if inside[a] and inside[b])
    expected = [ABSENT] * n_vertices
    for region in nx.connected_components(graph):
        for vertex in region:
            expected[vertex] = min(region)
    assert connected_regions(inside, edges).tolist() == expected


def test_a_long_chain_is_one_region() -> None:
    order = np.random.default_rng(0).permutation(10_000)
    edges = np.stack((order[:-1], order[1:]), axis=1)
    assert not connected_regions(np.ones(10_000, np.bool_), edges).any()


def test_there_may_be_nothing() -> None:
    assert connected_regions(np.zeros(0, np.bool_), np.zeros((0, 2), np.int64)).tolist() == []
