"""A Loop over the turns of another one, the last one first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from amp_rewrite.graph.metadata_keys import PART_KEY
from amp_rewrite.graph.step_part import Part
from amp_rewrite.graph.traverse import remove_unused_nodes
from amp_rewrite.training.builder.builder import Builder


@dataclass(eq=False)
class Carried:
    """What a loop carries from turn to turn.

    Attributes:
        first: Its value before the first turn.
        before: The body's input: its value before a turn.
        after: The body's output: its value after a turn.
        last: The loop's output: its value after the last turn.
    """

    first: ir.Value
    before: ir.Value
    after: ir.Value | None = None
    last: ir.Value | None = None


@dataclass(eq=False)
class Stacked:
    """What each turn gives out.

    Attributes:
        part: The body's output.
        whole: The loop's output: the parts, one behind the other along a new first axis.
    """

    part: ir.Value
    whole: ir.Value | None = None


class BackwardLoop:
    """A Loop while its body is being made.

    Attributes:
        body: The graph of a turn.
        inner: Adds nodes to it.
        turn: Stands for the number of the forward turn until `finish`.
    """

    def __init__(self, b: Builder, body: ir.Graph) -> None:
        """Take over a copy of the forward body, which loses its inputs and outputs."""
        self._b, self.body, self.inner = b, body, b.child(body)
        self.turn, self._goes_on = body.inputs[:2]
        self._carried: list[Carried] = []
        self._stacked: list[Stacked] = []
        body.inputs.clear()
        body.outputs.clear()

    def carry(self, first: ir.Value, stem: str) -> Carried:
        """Return a state, whose `after` has to be set."""
        name = self.inner.free_name(f"{self.body.name}/{stem}")
        before = ir.Value(name=name, type=first.type, shape=_copied(first.shape))
        self._carried.append(Carried(first, before))
        return self._carried[-1]

    def add_up(self, zeros: ir.Value, part: ir.Value, stem: str) -> Carried:
        """Return a state that is the sum of the parts of all turns, in the type of the zeros."""
        total = self.carry(zeros, stem)
        part = self.inner.cast_like(part, zeros)
        total.after = self.inner.shaped_like(self.inner.add(total.before, part), zeros)
        addition = total.after.producer()
        if addition is not None:
            addition.metadata_props[PART_KEY] = Part.SUM
        return total

    def stack(self, part: ir.Value) -> Stacked:
        """Return what a turn is to give out."""
        self._stacked.append(Stacked(part))
        return self._stacked[-1]

    def slice(self, whole: ir.Value, like: ir.Value) -> ir.Value:
        """Return the part of a forward turn of what all turns have given out."""
        return self.inner.shaped_like(self.inner.gather(whole, self.turn), like)

    def end_body(self) -> None:
        """Declare the outputs of a turn, and remove from the copy what none of them needs."""
        ends = [self._goes_on, *(c.after for c in self._carried), *(s.part for s in self._stacked)]
        # An output of a body is computed in it, and is one output only.
        self.body.outputs.extend(self.inner.op("Identity", value) for value in ends)
        remove_unused_nodes(self.body)

    def finish(self, turns: ir.Value) -> None:
        """Add the Loop; `turns` are the numbers of the forward turns: (n,) int64."""
        b, inner = self._b, self.inner
        count = b.op("Size", turns)
        number = inner.free_name(f"{self.body.name}/turn")
        done = ir.Value(name=number, type=self.turn.type, shape=ir.Shape([]))
        ir.convenience.replace_all_uses_with(self.turn, inner.sub(b.sub(count, 1), done))
        self.body.inputs.extend([done, self._goes_on, *(c.before for c in self._carried)])
        self.body.sort()
        firsts = [c.first for c in self._carried]
        number_of_outputs = len(self._carried) + len(self._stacked)
        results = b.op("Loop", count, None, *firsts, outputs=number_of_outputs, body=self.body)
        self._hand_out(results if isinstance(results, tuple) else (results,))

    def _hand_out(self, outputs: Sequence[ir.Value]) -> None:
        for carried, output in zip(self._carried, outputs, strict=False):
            output.type, output.shape = carried.first.type, _copied(carried.first.shape)
            carried.last = output
        for stacked, output in zip(self._stacked, outputs[len(self._carried) :], strict=True):
            lengths = self._b.symbolic_dims(stacked.part)
            output.type = stacked.part.type
            output.shape = None if lengths is None else ir.Shape([None, *lengths])
            stacked.whole = output


def _copied(shape: ir.Shape | None) -> ir.Shape | None:
    return None if shape is None else ir.Shape(shape.dims)


def settled(value: ir.Value | None) -> ir.Value:
    """Return a value that a loop has once it is finished."""
    assert value is not None, "the loop is not finished"
    return value
