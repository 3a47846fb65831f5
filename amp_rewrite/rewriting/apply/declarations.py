"""How the values of a rewritten model are declared: inputs, outputs, value_info."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnx import TypeProto, ValueInfoProto

from amp_rewrite.dtypes import DType
from amp_rewrite.graph.constants import FIRST_IR_WITH_OVERRIDES
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.proto.messages import declare, type_string
from amp_rewrite.rewriting.apply.rewiring import Added, Read, Rewiring


class Declarations:
    """The declarations of values: as the file has them, unless type or name are others."""

    def __init__(self, wiring: Rewiring) -> None:
        """Note which values become low; nothing is declared yet."""
        flat, plan = wiring.flat, wiring.plan
        self._wiring, self._flat, self._plan = wiring, flat, plan
        self._low = {*plan.retyped, *(v for v in plan.ends if flat.is_input(v))}

    def inputs(self, number: int) -> Iterator[ValueInfoProto]:
        """Yield the inputs of a graph in order, with copies of those that have a default."""
        flat, wiring = self._flat, self._wiring
        yield from (self._declared(v, "input") for v in flat.bodies[number].inputs)
        for weight in wiring.copies.get(number, ()):
            if flat.ir_version < FIRST_IR_WITH_OVERRIDES and flat.is_input(weight.value):
                yield self._new_info(wiring.added[weight.name], typed=True)

    def outputs(self, number: int) -> Iterator[ValueInfoProto]:
        """Yield the outputs of a graph in order."""
        for index in range(len(self._flat.bodies[number].outputs)):
            yield self._output(number, index)

    def infos(self, number: int, made: Sequence[Read]) -> Iterator[ValueInfoProto]:
        """Yield value_info: of what had it, and of new values whose type is known."""
        flat, body = self._flat, self._flat.bodies[number]
        ends = {self._wiring.outputs.get((number, i), v) for i, v in enumerate(body.outputs)}
        for value in dict.fromkeys((*body.inputs, *body.initializers)):
            yield from self._repeated(value, flat.is_input(value) or value in ends)
        for read in made:
            if isinstance(read, Added):
                typed = read.like != ABSENT and self._is_typed(read.like)
                if read.gave == ABSENT and read not in ends and typed:
                    yield self._new_info(read, typed=True)
            elif read in ends:
                yield from self._repeated(read, is_end=True)
            elif read in self._wiring.renamed:
                if self._is_typed(read):
                    yield self._info(read, notes=False)
            elif read in flat.declared:
                yield self._declared(read, "info")

    def _repeated(self, value: int, is_end: bool) -> Iterator[ValueInfoProto]:
        """Yield the value_info of a value that is declared elsewhere as well, if it still holds."""
        entry = self._flat.declared.get(value)
        if entry is not None and entry.info is not None and not (is_end and self._changed(value)):
            yield self._declared(value, "info")

    def _type(self, value: int) -> TypeProto | None:
        types = [info.type for info in self._flat.messages_of(value)]
        return next((t for t in reversed(types) if t.WhichOneof("value") is not None), None)

    def _is_typed(self, value: int) -> bool:
        return self._type(value) is not None

    def _changed(self, value: int) -> bool:
        """Tell whether the type that the file gives a value becomes another one."""
        if value not in self._low and value not in self._wiring.weights:
            return False
        before = self._type(value)
        return before is not None and type_string(before, self._wiring.name(value)) is not None

    def _declared(self, value: int, role: str) -> ValueInfoProto:
        """Return how a value is declared: as before unless its type is another one."""
        entry = self._flat.declared.get(value)
        source = None if entry is None else getattr(entry, role)
        return self._info(value) if source is None or self._changed(value) else source

    def _output(self, body: int, index: int) -> ValueInfoProto:
        value = self._flat.bodies[body].outputs[index]
        read = self._wiring.outputs.get((body, index), value)
        if isinstance(read, int):
            return self._declared(read, "output")
        if read.gave == ABSENT:
            return self._new_info(read, typed=self._is_typed(read.like))
        entry = self._flat.declared.get(read.gave)
        recorded = self._flat.recorded[read.gave]
        is_same = recorded == f"tensor({read.dtype.onnx})" or not self._is_typed(read.gave)
        if is_same and entry is not None and entry.output is not None:
            return entry.output
        return self._info(read.gave, dtype=read.dtype, name=read.name)

    def _info(
        self, value: int, *, dtype: DType | None = None, name: str = "", notes: bool = True
    ) -> ValueInfoProto:
        """Return a declaration of a value, with its type and name by default, and with `notes`."""
        flat, info = self._flat, ValueInfoProto(name=name or self._wiring.name(value))
        if dtype is None and self._changed(value):
            weight = self._wiring.weights.get(value)
            dtype = self._plan.low if weight is None else weight.dtype
        element = None if dtype is None else dtype.number
        declare(info, flat.messages_of(value), element, notes=notes)
        return info

    def _new_info(self, added: Added, *, typed: bool) -> ValueInfoProto:
        """Return the declaration of a value that is added: it has the shape of another one."""
        info = ValueInfoProto(name=added.name)
        if not typed:
            return info
        like = self._info(added.like, dtype=added.dtype, notes=False)
        info.type.tensor_type.elem_type = added.dtype.number
        if like.type.tensor_type.HasField("shape"):
            info.type.tensor_type.shape.CopyFrom(like.type.tensor_type.shape)
        return info
