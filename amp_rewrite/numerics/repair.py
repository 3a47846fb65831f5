"""`repair`: a model in 16 bits with what is dangerous in float32, and no more."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from amp_rewrite.base import arguments
from amp_rewrite.base.html_table import HtmlTable, to_html
from amp_rewrite.base.printable import counted, one_line
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import OptionError, SaveError, VerdictError
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.io.model_files import Path
from amp_rewrite.graph.io.model_files import Progress as Writing
from amp_rewrite.graph.io.paths import path_text
from amp_rewrite.numerics.safety_check import Progress, compared, judged
from amp_rewrite.numerics.safety_report import danger_lines
from amp_rewrite.oplists import ListName
from amp_rewrite.rewriting.api import RewriteResult, rewrite
from amp_rewrite.rewriting.apply.written_metadata import for_model
from amp_rewrite.rewriting.mend import Mended, mend_types
from amp_rewrite.rewriting.plan.options import (
    RewriteOptions,
    Weights,
    changed,
    with_option_names,
)
from amp_rewrite.rewriting.raise_dangers import (
    Danger,
    dangers,
    form_of,
    low_of,
    nothing_raised,
    odd_types,
    repaired,
)
from amp_rewrite.rewriting.read_source import read_source
from amp_rewrite.rewriting.report.arithmetic_share import compute_share
from amp_rewrite.rewriting.widen import Raised, WideForm

if TYPE_CHECKING:
    import onnx_ir as ir

    from amp_rewrite.graph.io.load import Source
    from amp_rewrite.numerics.compare.verify_report import VerifyReport
    from amp_rewrite.numerics.inputs.batches import Data

VERSION = 1
"""Version of the JSON form: keys may be added, never renamed."""

KeepIO = Literal["given", "float32"]
"""Which types graph inputs and outputs have afterwards."""

BUDGET = 600.0
"""Seconds for tuning."""


@dataclass(frozen=True)
class Repair:
    """A repaired model, what was raised to float32 in it, and why.

    Attributes:
        precision: The 16-bit type that the model computes in.
        target: For which target it was repaired.
        raised: The model, and what was changed in it.
        dangers: What the rules found, in execution order.
        measured: The nodes that data showed to need float32 besides.
        nodes: How many nodes computed in 16 bits before.
        share: The share of the arithmetic in 16 bits that is float32 now, from 0 to 1.
        verification: How far the result is from the float32 form; None if it was not verified.
        result: The float32 form with the painting that is left, for the page.
    """

    precision: str
    target: str
    raised: Raised
    dangers: tuple[Danger, ...]
    measured: tuple[str, ...]
    nodes: int
    share: float
    verification: VerifyReport | None
    result: RewriteResult = field(repr=False, compare=False)

    def __repr__(self) -> str:
        """Return one line, for much is in it."""
        return one_line(self, self.headline)

    @property
    def model(self) -> ir.Model:
        """The repaired model."""
        return self.raised.model

    @property
    def changed(self) -> bool:
        """Whether it differs from the one that was given."""
        return self.raised.changed

    @property
    def ok(self) -> bool:
        """Whether nothing speaks against it: it holds, or nobody asked."""
        return self.verification is None or self.verification.ok

    @cached_property
    def nodes_raised(self) -> int:
        """How many nodes compute in float32 that did not."""
        graph = self.raised.context.type_graph
        return len({graph.nodes[vertex] for vertex in self.raised.plan.vertices})

    @property
    def casts(self) -> int:
        """How many Casts were added."""
        planned = sum(1 for cast in self.raised.plan.casts if cast.existing == ABSENT)
        return planned + self.raised.mended.casts

    @cached_property
    def bytes_of_weights(self) -> int:
        """How many bytes weights take that are stored as float32 now, beyond what they took."""
        base = self.raised.context.type_graph.base
        wide = FLOAT32.numpy.itemsize
        return sum(
            w.tensor.size * (wide - (0 if w.keep_float32 else base(w.value).numpy.itemsize))
            for w in self.raised.plan.weights
        )

    @property
    def headline(self) -> str:
        """What was raised and what that costs, in one line."""
        if not self.changed:
            return f"nothing changed: the model is safe in {self.precision} for {self.target}"
        count = len(self.raised.mended.odd)
        mended = f"; {counted(count, 'contradiction')} of types mended" if count else ""
        stored = f", {self.bytes_of_weights:,} bytes of weights" if self.bytes_of_weights else ""
        return (
            f"{self.nodes_raised} of {self.nodes} nodes raised from {self.precision} to float32 "
            f"({self.share:.1%} of the arithmetic); {counted(self.casts, 'cast')} added, "
            f"{len(self.raised.removed)} removed{stored}{mended}"
        )

    @property
    def verdict(self) -> str | None:
        """Whether the result holds against the float32 form, in one line; None if nobody asked."""
        if self.verification is None:
            return None
        report = self.verification
        first = f": {report.failures[0]}" if report.failures else ""
        return f"{report.verdict} on {counted(report.feeds, 'feed')} ({report.data}){first}"

    def save(
        self, path: Path, *, write_failed: bool = False, progress: Writing | None = None
    ) -> None:
        """Write the repaired model if it holds, or was not verified.

        Args:
            path: The model file; external data go to a file next to it.
            write_failed: Write it even if it does not hold.
            progress: Called every few MiB.

        Raises:
            VerdictError: It does not hold; nothing was written.
            SaveError: It cannot be written; no new file is left behind.
        """
        if not (arguments.switch("write_failed", write_failed) or self.ok):
            failures = () if self.verification is None else self.verification.failures
            raise VerdictError(failures, self)
        self.raised.save(path, progress=progress)

    def lines(self) -> tuple[str, ...]:
        """Return what was raised and why, a line for each kind of danger."""
        found = [f"raised: {line}" for line in danger_lines(self.dangers, self.precision)]
        if self.measured:
            names = ", ".join(self.measured[:5])
            more = len(self.measured) - 5
            found.append(f"raised by data: {names}" + (f" and {more} more" if more > 0 else ""))
        return tuple(found)

    def to_text(self) -> str:
        """Return the report as lines."""
        verdict = () if self.verdict is None else (self.verdict,)
        return "\n".join((self.headline, *self.lines(), *verdict))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, version 1."""
        return {
            "version": VERSION,
            "changed": self.changed,
            "ok": self.ok,
            "precision": self.precision,
            "target": self.target,
            "nodes": self.nodes,
            "nodes_raised": self.nodes_raised,
            "arithmetic_raised": self.share,
            "casts_added": self.casts,
            "casts_removed": len(self.raised.removed),
            "weight_bytes_added": self.bytes_of_weights,
            "dangers": [asdict(danger) for danger in self.dangers],
            "measured": list(self.measured),
            "verification": None if self.verification is None else self.verification.to_dict(),
        }

    def to_json(self) -> str:
        """Return the report as JSON text."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n"

    def _repr_html_(self) -> str:
        """Return what notebooks show: what was raised and why."""
        rows = [(d.node, d.op, d.words, d.detail) for d in self.dangers]
        table = HtmlTable(("raised", "operator", f"in {self.precision} it", "more"), rows)
        return to_html(self.headline, () if self.verdict is None else (self.verdict,), (table,))


@with_option_names
def repair(
    model: Source,
    data: Data | None = None,
    options: RewriteOptions | None = None,
    *,
    keep_io: KeepIO = "given",
    weights: Weights = "cast",
    verify: bool = False,
    rtol: float | None = None,
    budget: float = BUDGET,
    stress: bool | None = None,
    output: Path | None = None,
    progress: Progress | None = None,
    **changes: Any,
) -> Repair:
    """Raise to float32 what is dangerous in a model in 16 bits, and no more.

    All else stays as it is. With data, what overflows on them is raised as well; the
    result, emulated, is compared with the model's own float32 form, which has the same weights, and
    more is raised until it holds.

    Args:
        model: A path, an onnx_ir model or a ModelProto; never modified.
        data: Batches, .npz files or folders of them; None asks the rules alone.
        options: For which target, and lists and rules.
        keep_io: "float32" gives float32 to the 16-bit inputs and outputs of the model.
        weights: What becomes of the weights of what is raised: "cast" leaves them stored as they
            are, behind a Cast; "convert" stores float32.
        verify: Verify the result without data, too, on made-up and stress inputs.
        rtol: The largest error of an output, as for `convert`.
        budget: Seconds for tuning.
        stress: Verify with stress inputs; None does so without data.
        output: Where to write the result if it holds.
        progress: Called with what begins.
        **changes: Single options by name, as for `rewrite`.

    Raises:
        VerdictError: It is to be written, and does not hold.
        OptionError: The model has nothing in 16 bits.
        AmpError: The model, the data or an option is wrong, or ONNX Runtime is not installed.
    """
    chosen = replace(changed(options, **changes), strict=False, store=FLOAT32.name)
    arguments.one_of("weights", weights, get_args(Weights))
    arguments.one_of("keep_io", keep_io, get_args(KeepIO))
    verify = arguments.switch("verify", verify)
    progress = arguments.function("progress", progress)
    flat = read_source(model, inline_functions=True)
    mended = mend_types(flat)
    flat = mended.flat
    low = low_of(flat)
    if low is None and mended.odd:
        return _mended_only(mended, for_model(chosen, flat), output)
    if low is None:
        raise OptionError(
            "the model computes nothing in 16 bits: there is nothing to repair",
            remedy="convert makes a mixed model of it",
        )
    chosen = for_model(replace(chosen, precision=low.name), flat)
    form = form_of(flat, low)
    result = _found(form, data, chosen, rtol, budget, progress)
    raised = repaired(
        form,
        result.painting,
        result.context,
        wide_ends=keep_io == FLOAT32.name,
        weights=weights,
        mended=mended,
    )
    shown = None
    if verify or data is not None:
        shown = compared(
            form, raised.model, data, chosen, rtol=rtol, stress=stress, progress=progress
        )
    made = _repair(form, result, raised, shown)
    if output is not None:
        made.save(path_text(output, SaveError))
    return made


def _mended_only(mended: Mended, options: RewriteOptions, output: Path | None) -> Repair:
    """Return a model whose types were at odds, and that computes in float32 now that they agree."""
    from amp_rewrite.graph.io.read import read_model

    raised = nothing_raised(mended, options.low)
    odd, target = odd_types(mended.odd), options.chosen_target
    result = rewrite(read_model(mended.flat), changed(options, deny_nodes=("*",)))
    made = Repair(options.low.name, target, raised, odd, (), 0, 0.0, None, result)
    if output is not None:
        made.save(path_text(output, SaveError))
    return made


def _found(
    form: WideForm,
    data: Data | None,
    options: RewriteOptions,
    rtol: float | None,
    budget: float,
    progress: Callable[[str], None] | None,
) -> RewriteResult:
    """Return the painting that is left of the one that was given."""
    if data is None:
        return judged(form, options)
    from amp_rewrite.numerics.convert import convert

    return convert(
        form.model, data, options, rtol=rtol, budget=budget, stress=False, progress=progress
    ).result


def _repair(
    form: WideForm, result: RewriteResult, raised: Raised, shown: VerifyReport | None
) -> Repair:
    context, options = result.context, result.options
    graph, given = context.type_graph, context.given
    assert given is not None, "the form is noted"
    feared = dangers(context, result.painting, options.chosen_target)
    odd = odd_types(raised.mended.odd)
    lost = given & ~result.painting.allow
    names = dict.fromkeys(graph.node_name(v) for v in np.flatnonzero(lost).tolist())
    known = {danger.node for danger in feared}
    origins = [form.origins[node] != ABSENT for node in np.unique(graph.node[lost]).tolist()]
    measured = () if not any(origins) else tuple(name for name in names if name not in known)
    products = np.unique(graph.node[context.on(ListName.ALLOW) & given]).tolist()
    low_now = compute_share(graph, result.painting, products)
    return Repair(
        options.precision,
        options.chosen_target,
        raised,
        (*odd, *feared),
        measured,
        len({form.origins[n] for n in np.unique(graph.node[given]).tolist()} - {ABSENT}),
        1 - low_now if products else 0.0,
        shown,
        result,
    )
