"""Calibrate: measure the float32 model over data, and deny what does not fit the 16-bit type.

A value does not fit if it overflows (its largest magnitude, times a margin, rounds to infinity), if
much of its sum of magnitudes lies below the smallest normal, or if it is a divisor or the input of
a logarithm with elements below the smallest normal. Every type variable that writes or reads it is
denied. Fills of masks that end in a Softmax (rewriting/paint/masks.py) do not count.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Unpack

from amp_rewrite import targets
from amp_rewrite.base import arguments
from amp_rewrite.base.printable import counted, html_table
from amp_rewrite.dtypes import DType
from amp_rewrite.errors import DataError, OutOfTimeError
from amp_rewrite.graph.io.load import Source
from amp_rewrite.kernels.accumulation import operators_adding_in
from amp_rewrite.numerics.inputs.batches import Data, batches, count
from amp_rewrite.numerics.ranges.bounds import ACCUMULATING, POOLS, PRODUCTS
from amp_rewrite.numerics.ranges.value_ranges import Range, RangeMeter
from amp_rewrite.numerics.repaint.overlay import OpListFile, overlay_text
from amp_rewrite.numerics.repaint.repaint import Repainter
from amp_rewrite.oplists import ListName, NodeRule
from amp_rewrite.rewriting.paint.node_rules import Findings
from amp_rewrite.rewriting.plan.options import Changes, RewriteOptions, changed, with_option_names
from amp_rewrite.rewriting.report.records import Shown

MARGIN = 1.5
"""Unseen data reach further than seen ones: half a bit of headroom."""

_SHOWN = 20
"""How many rules the text has."""

_SUBNORMAL_SHARE = 0.1
"""The share of the sum of magnitudes that may lie below the smallest normal."""

Progress = Callable[[int, int | None], None]
"""Called after each batch with how many are done, and how many there are if that is known."""


@dataclass(frozen=True, repr=False)
class Calibration(OpListFile, Shown):
    """The result of a calibration.

    Attributes:
        rules: The type variables to keep float32, in execution order, with measured reasons.
        ranges: Value name -> its range; values that hold the same elements are listed once.
        ends: Names of 16-bit graph inputs and outputs that do not fit.
        unmeasured: Names of values that could not be measured (bodies of SequenceMap, say).
        batches: The number of batches that were seen.
        total: The number of batches that there are; None if only reading them would tell.
        options: The options of the rewrite that it was made for.
        model: The model as the file's comment calls it.
        sums: Name of a result -> the largest sum of magnitudes that its node formed, which bounds
            its partial sums.
    """

    _beside = ("nodes",)
    _apart = ("options",)

    rules: tuple[NodeRule, ...]
    ranges: Mapping[str, Range]
    ends: tuple[str, ...]
    unmeasured: tuple[str, ...]
    batches: int
    options: RewriteOptions
    model: str
    total: int | None = None
    sums: Mapping[str, float] = field(default_factory=dict[str, float])

    def _repr_html_(self) -> str:
        """Return the ranges as a table, which a notebook shows."""
        names = ("value", "largest", "smallest", "subnormal share")
        rows = (
            (name, *(f"{number:.4g}" for number in each[:3])) for name, each in self.ranges.items()
        )
        return html_table(repr(self), names, rows)

    @property
    def findings(self) -> Findings:
        """The findings for a painting."""
        return Findings(self.rules, measured=not self.unmeasured)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the nodes concerned, in execution order."""
        return tuple(dict.fromkeys(rule.node for rule in self.rules))

    def lines(self) -> Iterator[str]:
        """Yield how many nodes must stay float32, and why."""
        yield (
            f"{counted(len(self.nodes), 'node')} must stay float32; "
            f"{counted(len(self.ranges), 'value')} measured on {counted(self.batches, 'batch')}"
        )
        for rule in self.rules[:_SHOWN]:
            variable = "" if rule.variable is None else f"/{rule.variable}"
            yield f"{rule.node}{variable}: {rule.why}"
        if len(self.rules) > _SHOWN:
            yield f"and {len(self.rules) - _SHOWN} more"
        if self.ends:
            yield f"inputs and outputs to keep float32: {', '.join(self.ends)}"
        if self.unmeasured:
            count = counted(len(self.unmeasured), "value")
            yield f"{count} inside function bodies could not be measured"

    def to_yaml(self) -> str:
        """Return an op list file for `rewrite(lists=...)` and `convert --lists`."""
        data = counted(self.batches, "batch")
        comments = [
            f"Made by `amp-rewrite calibrate` for {self.model}, from {data}.",
            f"These nodes do not fit {self.options.precision} on the data measured.",
        ]
        if self.ends:
            comments.append(f"Keep the types of these inputs and outputs: {', '.join(self.ends)}.")
        if self.unmeasured:
            comments.append(f"{len(self.unmeasured)} values could not be measured.")
        return overlay_text(self.rules, self.options, comments)


@with_option_names
def calibrate(
    model: Source,
    data: Data,
    options: RewriteOptions | None = None,
    *,
    margin: float = MARGIN,
    progress: Progress | None = None,
    **changes: Unpack[Changes],
) -> Calibration:
    """Find the nodes of a model whose values do not fit the 16-bit type's range.

    Args:
        model: A path, an onnx_ir model or a ModelProto; never modified.
        data: Batches (mappings from input names to arrays), or .npz or .csv files and folders of
            .npz files. They are read one at a time, once.
        options: The options of the rewrite, as for `rewrite`.
        margin: The factor by which a value may become larger than measured.
        progress: Called after each batch.
        **changes: Single options by name, as for `rewrite`.

    Returns:
        Node rules with measured reasons, and the ranges of all values.

    Raises:
        AmpError: The model, the data, a list or an option is wrong.

    Examples:
        >>> data = [{"x": np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8)}]
        >>> calibration = amp.calibrate("model.onnx", data)
        >>> calibration
        <Calibration: 0 nodes must stay float32; 5 values measured on 1 batch>
        >>> calibration.save("found.yaml")
        >>> result = amp.rewrite("model.onnx", lists="found.yaml")
    """
    margin = arguments.number("margin", margin, low=1, expected="a number of at least 1")
    progress = arguments.function("progress", progress)
    chosen = changed(options, **changes)
    # what an estimate alone would keep is asked about as well, where all has to be in 16 bits
    painter = Repainter.of(model, chosen, Findings(measured=chosen.only is not None))
    meter = RangeMeter.of(painter, _sums(painter.options))
    total = count(data)
    for feeds in batches(data, painter.model):
        try:
            meter.add(feeds)
        except OutOfTimeError:
            if not meter.batches:
                raise
            break
        if progress is not None:
            progress(meter.batches, total)
    if not meter.batches:
        raise DataError("the data hold no batch", remedy="pass at least one")
    limits = _Limits(painter.low, margin, meter.batches)
    return Calibration(
        rules=_deny(painter, _unfit(meter, limits)),
        ranges={value.name or "": value_range for value, value_range in meter.ranges().items()},
        ends=_unfit_ends(meter, limits),
        unmeasured=meter.unmeasured,
        batches=meter.batches,
        total=total,
        options=painter.options,
        model=os.path.basename(model) if isinstance(model, str | os.PathLike) else "a model",
        sums={
            painter.nodes[node].outputs[0].name or "": largest
            for node, largest in meter.partial_sums().items()
        },
    )


def _sums(options: RewriteOptions) -> tuple[str, ...]:
    """Return the reductions, and products and pools that the target adds up in the 16-bit type."""
    target = targets.find(options.chosen_target)
    if target.accumulates_in is not options.low:
        return ACCUMULATING
    measured = {op for _, op in operators_adding_in(target, options.low)}
    return (*ACCUMULATING, *(op for op in (*PRODUCTS, *POOLS) if op in measured or not measured))


@dataclass(frozen=True)
class _Limits:
    low: DType
    margin: float
    batches: int

    def reason(self, value_range: Range, *, absorbed: bool = False) -> str | None:
        """Return why a range does not fit, or None; `absorbed` leaves fills of masks out."""
        largest = value_range.counted if absorbed else value_range.largest
        return self.overflow(largest, "measured") or self._underflow(value_range)

    def overflow(self, largest: float, what: str) -> str | None:
        """Return why a magnitude is too large, or None if it is not."""
        if largest * self.margin < self.low.overflow:
            return None
        limit = f"{self.low.max:.6g}" if self.low.max < 1e6 else f"{self.low.max:.4g}"
        relation = ">" if largest >= self.low.overflow else f"x {self.margin:g} >"
        return f"{what} {largest:.4g} {relation} {limit} over {counted(self.batches, 'batch')}"

    def _underflow(self, value_range: Range) -> str | None:
        least, batches = f"{self.low.smallest_normal:.3g}", counted(self.batches, "batch")
        if value_range.smallest < self.low.smallest_normal:
            smallest = f"{value_range.smallest:.3g}"
            return f"a divisor or logarithm of {smallest} < {least} was measured over {batches}"
        if value_range.subnormal_share > _SUBNORMAL_SHARE:
            return (
                f"measured {value_range.subnormal_share:.0%} of the magnitude below {least} in one "
                f"of {batches}, largest {value_range.largest:.3g}"
            )
        return None


def _unfit(meter: RangeMeter, limits: _Limits) -> dict[int, str]:
    """Return the vertices, low or not, that a measured range forbids to become low, and why."""
    reasons: dict[int, str] = {}
    ranges, painter = meter.ranges(), meter.painter
    for value, source in meter.source.items():
        if source not in ranges:
            continue
        reason = limits.reason(ranges[source], absorbed=value in meter.absorbed)
        if reason is not None:
            for vertex in painter.carriers.get(value, ()):
                reasons.setdefault(vertex, reason)
    for node, largest in meter.partial_sums().items():
        reason = limits.overflow(largest, "partial sums reached")
        if reason is not None:
            results = (painter.carriers.get(v, ()) for v in painter.nodes[node].outputs)
            own = (v for each in results for v in each if painter.type_graph.nodes[v] == node)
            reasons |= dict.fromkeys(own, reason)
    return reasons


def _unfit_ends(meter: RangeMeter, limits: _Limits) -> tuple[str, ...]:
    """Return the graph inputs and outputs that are to become low and do not fit: no list can."""
    ranges = meter.ranges()
    return tuple(
        value.name or ""
        for value, source in meter.source.items()
        if value in meter.painter.ends
        and source in ranges
        and limits.reason(ranges[source], absorbed=value in meter.absorbed)
    )


def _deny(painter: Repainter, unfit: Mapping[int, str]) -> tuple[NodeRule, ...]:
    """Deny the unfit vertices that the painting makes low, until it makes none of them low."""
    graph, denied = painter.type_graph, dict[int, str]()
    while True:
        rules = tuple(
            NodeRule(
                painter.nodes[graph.nodes[vertex]].name or "",
                graph.kind_of(vertex).variables[0],
                ListName.DENY,
                why,
                "calibrate",
            )
            for vertex, why in sorted(denied.items())
        )
        low = frozenset(painter.paint(rules).painting.allowed())
        new = {v: why for v, why in unfit.items() if v in low and v not in denied}
        if not new:
            return rules
        denied |= new
