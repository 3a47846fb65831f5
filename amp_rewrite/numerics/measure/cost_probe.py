"""A table of costs for any model, made by running small models on a provider.

Models of one operator, and of two where it is asked what they cost together, run in float32 and in
the low type by turns. A time is the least of many runs in several sessions, less what running an
empty model takes. Of every family's times c + e x elements + m x multiply-accumulates is fitted
with relative errors and no negative number. What a join saves is what two operators apart take less
what they take together. What parting two operators costs is what they take with a cast between
them, one way and the other, less what they take in one type and in the other: their own times, and
what the ends of a model take, cancel. The casts between them cost what of that is not lost by a
join.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import onnx

from amp_rewrite import targets
from amp_rewrite.base.processor import onednn_instructions
from amp_rewrite.dtypes import LOW, low_dtype
from amp_rewrite.errors import OptionError
from amp_rewrite.kernels.cost_files import FORMAT_VERSION
from amp_rewrite.kernels.costs import LEAST_ROUNDING
from amp_rewrite.numerics.measure.pairs import Pairs, other_casts, pairs
from amp_rewrite.numerics.measure.probes import (
    CALLS,
    FAMILIES,
    ONE_TYPE,
    SPLITS,
    WITH_PRODUCTS,
    Call,
    model_of,
)
from amp_rewrite.numerics.measure.timing import NOT_RUN, Clock, fitted
from amp_rewrite.runtimes.engines import check_provider, times_mean_nothing
from amp_rewrite.runtimes.facts import facts_of

PAIRS = "pairs"
"""What stands for casts and joins where families are named."""

PARTS = (*FAMILIES, PAIRS)
"""What can be measured alone."""

SOURCE = "amp-rewrite measure-costs"

_TILES, _LEAST_WITH_TILES = "amx_bf16", 0.02
"""With these instructions a product takes a fifth of its time or less on OpenVINO, and what is
between products counts more: with .2 five networks were 5 to 8 % slower than OpenVINO's own choice,
with .1 2 to 5 %; clap and PoolFormer 6 and 14 % with .1, 3 and 4 to 10 % with .02."""


def measure_costs(
    provider: str,
    precision: str | None = None,
    *,
    threads: int = 0,
    sessions: int = 4,
    only: Collection[str] = (),
    before: Mapping[str, Any] | None = None,
    progress: Callable[..., None] = lambda *_: None,
) -> dict[str, Any]:
    """Return a table of what operators and casts take on a provider, as JSON holds it.

    Args:
        provider: An execution provider, or an engine.
        precision: The low type; None for the first of those that its target computes in.
        threads: Threads inside an operator; 0 is the engine's choice.
        sessions: How often each small model is loaded.
        only: Some of `PARTS`, to measure these; none stands for all.
        before: The table that the other parts are taken from.
        progress: Called with how many parts are done, of how many, and what is next.

    Raises:
        OptionError: There is no such provider or part, or the device computes nothing in the type.
        AmpError: The engine is not installed, or has no device.
    """
    check_provider(provider)
    target = targets.of_provider(provider)
    precisions = tuple(LOW) if target is None else target.precisions
    low = low_dtype(precisions[0] if precision is None else precision)
    if target is not None:
        target.check_precision(low.name)
    reason = times_mean_nothing(provider, low.name)
    if reason is not None:
        raise OptionError("times would mean nothing here", where=provider, found=reason)
    wanted = _parts_wanted(only)
    clock = Clock(provider, low, threads, sessions)
    facts = facts_of(provider)
    costs = [*_rates(clock, wanted, progress)]
    if not only and all(row["type"] != low.name for row in costs):
        raise OptionError(
            f"the provider runs no operator in {low.name}",
            where=provider,
            remedy="name another --precision, or another provider",
        )
    if PAIRS in wanted:
        measured = pairs(clock, progress)
    else:  # a table without any cast would say that they take nothing
        measured = Pairs([*other_casts((), clock)] if before is None else [], [])
    table = {
        "version": FORMAT_VERSION,
        "provider": provider,
        "runtime": facts.runtime,
        "device": facts.device + (f", {threads} threads" if threads else ""),
        "driver": facts.driver,
        "source": SOURCE,
        "with_products": list(WITH_PRODUCTS.get(provider, ())),
        "one_type": list(ONE_TYPE.get(provider, ())),
        "least_rounding": _least_rounding(provider),
        "families": {family: list(operators) for family, operators in FAMILIES.items()},
        "costs": costs,
        "casts": measured.casts,
        "joins": measured.joins,
    }
    return table if before is None else _complete_table(table, before, wanted)


def _least_rounding(provider: str) -> float:
    """Return what share of a mean operator's time one that rounds has to save on a provider."""
    has_tiles = provider == targets.OPENVINO and _TILES in onednn_instructions()
    return _LEAST_WITH_TILES if has_tiles else LEAST_ROUNDING


def _parts_wanted(only: Collection[str]) -> tuple[str, ...]:
    """Return which parts are measured.

    Raises:
        OptionError: One is none.
    """
    for part in only:
        if part not in PARTS:
            raise OptionError(
                "there is no such family of operators", found=part, expected=", ".join(PARTS)
            )
    return tuple(part for part in PARTS if not only or part in only)


def _rates(
    clock: Clock, wanted: Collection[str], progress: Callable[..., None]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of costs, of calls that the provider runs."""
    for number, (family, calls) in enumerate(CALLS.items()):
        if family not in wanted:
            continue
        progress(number, len(CALLS), family)
        models = [model_of(call, dtype, clock.narrow) for call in calls for dtype in clock.types]
        if family == "convolution":  # in a row, for at the ends of a model layouts change
            took = [_time_per_node(*_in_rows(model, clock)) for model in models]
        else:
            took = clock.microseconds(models, layouts=family == "recurrent")
        for offset, dtype in enumerate(clock.types):
            yield from _fit_family(family, calls, dtype.name, took[offset :: len(clock.types)])


def _fit_family(
    family: str, calls: Sequence[Call], type_: str, times: Sequence[float]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a family in a type, one for each range of sizes that was measured."""
    for least, part in _parts(calls, SPLITS.get(family, ())):
        chosen = [i for i in part if 0 < times[i] < NOT_RUN]  # else it was all layouts
        if chosen:
            sizes = [(calls[i].elements, calls[i].macs) for i in chosen]
            row = fitted(sizes, [times[i] for i in chosen])
            yield {"family": family, "type": type_, "from": least, **row}


def _time_per_node(one: float, longer: float) -> float:
    """Return what a node takes of which one, and three in a row, took so long."""
    return NOT_RUN if NOT_RUN in (one, longer) else max(0.0, longer - one) / 2


def _in_rows(model: onnx.ModelProto, clock: Clock) -> list[float]:
    """Return what a model of one node takes, and what three such nodes in a row take."""
    row = onnx.ModelProto()
    row.CopyFrom(model)
    for index in range(2):
        node = row.graph.node.add()
        node.CopyFrom(model.graph.node[0])
        row.graph.node[index].output[0] = node.input[0] = f"h{index}"
    return clock.microseconds([model, row])


def _parts(calls: Sequence[Call], splits: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """Yield the least size of a row, and which calls it is fitted to."""
    sizes = [call.macs or call.elements for call in calls]
    for least, end in zip((0, *splits), (*splits, float("inf")), strict=True):
        yield least, [i for i, size in enumerate(sizes) if least <= size < end]


def _complete_table(
    table: dict[str, Any], before: Mapping[str, Any], measured: Collection[str]
) -> dict[str, Any]:
    """Return a table with what was not measured from the one before."""
    kept = [row for row in before["costs"] if row["family"] not in measured]
    order = [*FAMILIES]
    costs = sorted([*kept, *table["costs"]], key=lambda row: order.index(row["family"]))
    told = table if PAIRS in measured else before
    return {**table, "costs": costs, "casts": told["casts"], "joins": told["joins"]}
