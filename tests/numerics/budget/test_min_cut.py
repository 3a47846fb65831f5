"""The cheapest set, against brute force and networkx."""

import itertools

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amp_rewrite.graph.flat import ABSENT, Array
from amp_rewrite.numerics.budget import min_cut
from amp_rewrite.numerics.budget.min_cut import Arcs, cheapest_set, connected_regions


def arcs_of(rows: list[tuple[int, int, int]]) -> Arcs:
    columns = np.array(rows, np.int64).reshape(-1, 3)
    return Arcs(columns[:, 0], columns[:, 1], columns[:, 2])


def price(costs: Array, arcs: Arcs, chosen: Array) -> int:
    cut = chosen[arcs.tails] & ~chosen[arcs.heads]
    return int(costs[chosen].sum() + arcs.costs[cut].sum())


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int, int]]]:
    size = draw(st.integers(1, 9))
    costs = draw(st.lists(st.integers(-12, 12), min_size=size, max_size=size))
    vertex = st.integers(0, size - 1)
    rows = draw(st.lists(st.tuples(vertex, vertex, st.integers(0, 9)), max_size=24))
    return costs, rows


@settings(max_examples=100)
@given(problems())
def test_no_other_set_is_cheaper_or_as_cheap_and_without_one_of_its_vertices(
    problem: tuple[list[int], list[tuple[int, int, int]]],
) -> None:
    costs, arcs = np.array(problem[0]), arcs_of(problem[1])
    found = cheapest_set(costs, arcs)
    sets = [np.array(bits) for bits in itertools.product((False, True), repeat=len(costs))]
    prices = [price(costs, arcs, chosen) for chosen in sets]
    assert price(costs, arcs, found) == min(prices)
    cheapest = [s for s, p in zip(sets, prices, strict=True) if p == min(prices)]
    assert all((found <= other).all() for other in cheapest)


def by_networkx(costs: Array, arcs: Arcs) -> int:
    """Return the price of the cheapest set by the maximum flow of networkx."""
    graph = nx.DiGraph()
    graph.add_nodes_from(("s", "t"))
    for vertex, cost in enumerate(costs.tolist()):
        if cost < 0:
            graph.add_edge("s", vertex, capacity=-cost)
        elif cost > 0:
            graph.add_edge(vertex, "t", capacity=cost)
    for tail, head, cost in zip(
        arcs.tails.tolist(), arcs.heads.tolist(), arcs.costs.tolist(), strict=True
    ):
        if tail != head:
            known = graph.get_edge_data(tail, head, {"capacity": 0})["capacity"]
            graph.add_edge(tail, head, capacity=known + cost)
    return int(nx.maximum_flow_value(graph, "s", "t")) + int(costs[costs < 0].sum())


@pytest.mark.share(2)
@pytest.mark.parametrize("rounds", [0, 64])
@pytest.mark.parametrize("seed", range(6))
def test_large_ones_cost_what_networkx_says(
    seed: int, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(min_cut, "MOST_ROUNDS", rounds)
    rng = np.random.default_rng(seed)
    size, degree = 300, rng.integers(1, 5)
    costs = rng.integers(-1000, 1000, size)
    tails, heads = rng.integers(0, size, (2, size * degree))
    arcs = Arcs(tails, heads, rng.integers(0, 900, size * degree))
    found = cheapest_set(costs, arcs)
    assert price(costs, arcs, found) == by_networkx(costs, arcs)


def test_a_chain_that_nothing_but_a_flow_decides() -> None:
    size = 2_000
    costs = np.zeros(size, np.int64)
    costs[0], costs[-1] = -5, 6
    steps = np.arange(size - 1)
    there = Arcs(steps, steps + 1, np.full(size - 1, 7))
    assert not cheapest_set(costs, there).any()
    costs[-1] = 4
    assert cheapest_set(costs, there).all()


def test_the_costs_given_are_left_alone() -> None:
    costs = np.array([-3, 2])
    cheapest_set(costs, arcs_of([(0, 1, 5)]))
    assert costs.tolist() == [-3, 2]


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
