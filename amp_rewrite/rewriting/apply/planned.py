"""A model as it was read, and what a plan makes of it when somebody asks for that."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.elements import tensor
from amp_rewrite.graph.flat import FlatGraph
from amp_rewrite.graph.io.model_files import Path, Progress
from amp_rewrite.graph.io.save_messages import save_messages
from amp_rewrite.graph.paused_gc import paused_gc
from amp_rewrite.graph.special_types import attribute_type
from amp_rewrite.rewriting.apply.rewritten_graph import RewrittenGraph, rewritten_flat
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.plan.casts import CastPlan

if TYPE_CHECKING:
    import onnx_ir as ir


class Planned:
    """A model as it was read, and what changes in it, which is carried out when it is asked for."""

    flat: FlatGraph
    context: PaintContext
    plan: CastPlan
    removed: tuple[int, ...]

    @property
    def model(self) -> ir.Model:
        """The model with the changes; it is built when it is first asked for."""
        return self._model

    @cached_property
    def _model(self) -> ir.Model:
        from amp_rewrite.graph.io.read import read_model

        with paused_gc():
            return read_model(self.rewritten)

    @cached_property
    def rewritten(self) -> FlatGraph:
        """The model with the changes, by number."""
        with paused_gc():
            graph, notes = self.context.type_graph, self._metadata()
            return rewritten_flat(self.flat, graph, self.plan, self.removed, notes).flat

    def save(self, path: Path, *, progress: Progress | None = None) -> None:
        """Write the model with the changes; weights are converted on their way.

        Args:
            path: The model file; external data go to a file next to it.
            progress: Called every few MiB.

        Raises:
            InvariantError: onnx's checker refuses the result, but not the model: a defect of this
                package, for which no file is written.
            SaveError: It cannot be written; no new file is left behind.
            LoadError: External data of the model have become unreadable.
        """
        with paused_gc():
            is_made = "rewritten" in vars(self)
            if is_made:
                messages = self.rewritten.proto, self.rewritten.files
            else:
                types, notes = self.context.type_graph, self._metadata()
                messages = RewrittenGraph(self.flat, types, self.plan, self.removed).messages(notes)
            source = None if self.plan.is_empty else (self.flat.proto, self.flat.files)
            save_messages(messages, path, progress, source, owned=not is_made)

    def _metadata(self) -> dict[str, str]:
        return {}


def noop_casts(type_graph: TypeGraph, plan: CastPlan) -> tuple[int, ...]:
    """Return the model's Casts that will cast the low type to itself.

    A Cast becomes one if what it reads turns low and it casts to the low type: either it always
    did, or it was retargeted, or it changed nothing before. One that is a no-op either way is the
    model's own business.
    """
    flat = type_graph.flat
    low_values = {*plan.retyped, *(v for v in plan.ends if flat.is_input(v))}
    low = tensor(plan.low.number)
    nodes: list[int] = []
    for node in flat.nodes_of("Cast"):
        source, output = flat.inputs_of(node)[0], flat.outputs_of(node)[0]
        was_low = type_graph.types[source] == low
        casts_to_low = attribute_type(flat.attributes(node), "to") == low
        writes_low = output in low_values or (casts_to_low and not was_low)
        if (source in low_values or was_low) and writes_low and not flat.is_output(output):
            nodes.append(node)
    widened = {cast.value for cast in plan.casts if cast.to is not plan.low}
    for node in flat.idle_casts:
        output = flat.outputs_of(node)[0]
        if output in widened:
            continue  # the Cast back would follow another, or do what another does
        if output in low_values and flat.uses(output) and not flat.is_output(output):
            nodes.append(node)
    return tuple(nodes)
