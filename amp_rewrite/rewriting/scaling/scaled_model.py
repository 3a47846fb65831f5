"""Carry exponents out: the same nodes, with constants and attributes times powers of two.

Where a node reads a value with another exponent than it is made with, a Mul stands between them.

Nothing is decided here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, numpy_helper
from onnx.helper import make_attribute, make_node

from amp_rewrite.dtypes import FLOAT32, FLOAT64, LOW, DType
from amp_rewrite.graph.added import AddedNames
from amp_rewrite.graph.constants import FIRST_IR_WITH_OVERRIDES, stored_tensor
from amp_rewrite.graph.elements import element
from amp_rewrite.graph.flat import MAIN, Array, FlatGraph
from amp_rewrite.graph.io.model_files import Place, refer
from amp_rewrite.graph.io.read import tensor_of
from amp_rewrite.graph.metadata_keys import EXPONENTS_KEY
from amp_rewrite.graph.proto.external import HELD, Held
from amp_rewrite.graph.proto.number_model import number_model
from amp_rewrite.graph.proto.stored import StoredTensor
from amp_rewrite.graph.rounding import to_low
from amp_rewrite.graph.tensors import ConvertedTensor, stored
from amp_rewrite.rewriting.scaling.borders import borders
from amp_rewrite.values.scales.call import ScaledAttribute, System
from amp_rewrite.values.scales.equations import MOST_COPIED

T = TypeVar("T")
"""A node of a graph, by number or as a message."""

_DTYPES: Mapping[int, DType] = {t.number: t for t in (FLOAT32, FLOAT64, *LOW.values())}


def scaled_flat(system: System, exponents: Mapping[int, int], note: str = "") -> FlatGraph:
    """Return a model with its constants times powers of two; the one that was given is left alone.

    Long constants are multiplied when they are read. Where a short one in 16 bits would lose digits
    that count (`_loses_digits`) it is stored as float32, with a Cast behind it.

    Args:
        system: The model and its elements.
        exponents: Element -> its exponent; others have 0.
        note: These exponents as the metadata of the scaled model have them, if they are to.
    """
    return _Scaled(system, exponents, note).written()


@dataclass
class _Scaled:
    system: System
    exponents: Mapping[int, int]
    note: str = ""
    held: list[Held] = field(default_factory=list[Held])

    def __post_init__(self) -> None:
        flat = self.system.flat
        self.flat = flat
        self.proto = onnx.ModelProto()
        self.proto.CopyFrom(flat.proto)
        self.names = AddedNames((*flat.value_names, *flat.node_names))
        self.graphs: dict[int, GraphProto] = {}
        self.messages: dict[int, NodeProto] = {}
        self._find(MAIN, self.proto.graph)
        self.added: dict[int, list[tuple[int, NodeProto]]] = {}
        self.initializers: dict[int, dict[str, TensorProto]] = {}
        self.dropped: dict[int, set[str]] = {}
        self.factors = {e for product in self.system.products for e, _ in product.factors}

    def _find(self, number: int, graph: GraphProto) -> None:
        """Find the copied message of every node and graph."""
        self.graphs[number] = graph
        for node, message in zip(self.flat.bodies[number].nodes, graph.node, strict=True):
            self.messages[node] = message
            inner = (g for a in message.attribute if not a.ref_attr_name for g in _graphs(a))
            for body, held in zip(self.flat.bodies_in(node), inner, strict=True):
                self._find(body, held)

    def written(self) -> FlatGraph:
        for value, slots in self._slots().items():
            self._scale(value, slots)
        for attribute in self.system.attributes:
            exponent = self.exponents.get(attribute.element, 0) * attribute.ratio
            if exponent:
                _scale_attribute(self.messages[attribute.node], attribute, exponent)
        self._add_borders()
        self._drop()
        if self.note:
            metadata = {**self.flat.metadata_props, EXPONENTS_KEY: self.note}
            onnx.helper.set_model_props(self.proto, metadata)
        names = self._place_added()
        model = number_model(self.proto, self.flat.files.holding(self.held))
        model.keep_names(names)
        return model

    def _slots(self) -> dict[int, dict[int, int]]:
        """Return, by constant, the exponent at each position in `inputs` that reads it."""
        slots: dict[int, dict[int, int]] = {}
        for read, exponent in self.exponents.items():
            if read not in self.system.constants or not exponent:
                continue
            value = self.system.value_of(read)
            if stored_tensor(self.flat, value) is None:
                continue  # what a ConstantOfShape repeats: an attribute
            uses = [read - self.flat.n_values] if read != value else self.flat.uses(value)
            slots.setdefault(value, {}).update(dict.fromkeys(uses, exponent))
            if read == value and not uses:
                slots[value] = {-1: exponent}
        return slots

    def _scale(self, value: int, slots: Mapping[int, int]) -> None:
        """Scale a constant in its place for one exponent, and in copies for others."""
        uses = self.flat.uses(value)
        groups: dict[int, list[int]] = {}
        for slot in uses or [*slots]:
            groups.setdefault(slots.get(slot, 0), []).append(slot)
        in_place = None if 0 in groups else next(iter(groups))
        for exponent, readers in groups.items():
            if exponent == in_place:
                self._replace(value, exponent)
            elif exponent:
                name = self._copy(value, exponent, readers)
                for slot in readers:
                    node = self.flat.reader(slot)
                    self.messages[node].input[self.flat.index(slot)] = name

    def _replace(self, value: int, exponent: int) -> None:
        flat, home = self.flat, self.flat.home[value]
        name, node = flat.value_names[value], flat.producer[value]
        tensor, is_wide = self._constant(value, exponent, flat.uses(value))
        own = self.names.part(name, "Scaled") if is_wide else name
        message = self._message(tensor, exponent, own, wide=is_wide)
        if node >= 0:
            constant = make_node("Constant", [], [own], value=message)
            node_message = self.messages[node]
            del node_message.attribute[:], node_message.output[:]
            node_message.MergeFrom(constant)
        elif is_wide:
            self.dropped.setdefault(home, set()).add(name)
            self._append(self.graphs[home], message)
        else:
            self._initializer(home, name).CopyFrom(message)
        if is_wide:
            self._cast(value, own, name, tensor.dtype)

    def _initializer(self, home: int, name: str) -> TensorProto:
        """Return an initializer of a graph."""
        if home not in self.initializers:
            held = self.graphs[home].initializer
            self.initializers[home] = {tensor.name: tensor for tensor in held}
        return self.initializers[home][name]

    def _drop(self) -> None:
        """Remove initializers, and what declares them as inputs or in value_info."""
        for home, names in self.dropped.items():
            graph = self.graphs[home]
            for entries in (graph.initializer, graph.input, graph.value_info):
                for place in [i for i, entry in enumerate(entries) if entry.name in names][::-1]:
                    del entries[place]

    def _copy(self, value: int, exponent: int, readers: Sequence[int]) -> str:
        name, home = self.flat.value_names[value], self.flat.home[value]
        tensor, is_wide = self._constant(value, exponent, readers)
        own = self.names.part(name, "Scaled")
        message = self._message(tensor, exponent, own, wide=is_wide)
        node = self.flat.producer[value]
        if node >= 0:
            constant = make_node("Constant", [], [own], own, value=message)
            self.added.setdefault(home, []).append((self._places[node][1], constant))
        else:
            self._append(self.graphs[home], message)
        if not is_wide:
            return own
        other = self.names.part(name, "Scaled")
        self._cast(value, own, other, tensor.dtype)
        return other

    def _add_borders(self) -> None:
        """Put a Mul between a value and the nodes of each graph that read it times another power.

        A Mul stands in front of the first of them.
        """
        flat, border_list = self.flat, borders(self.system, self.exponents)
        places = self._places
        readers: dict[tuple[int, int, int], list[int]] = {}
        for value, read, factor in border_list:
            slot = read - flat.n_values
            home, _ = places[flat.reader(slot)]
            readers.setdefault((value, factor, home), []).append(slot)
        for (value, factor, home), slots in readers.items():
            name, number = flat.value_names[value], element(self.system.types[value] or "")
            own, scaled = self.names.part(name, "Factor"), self.names.part(name, "Scaled")
            array = np.array(math.ldexp(1.0, factor)).astype(_DTYPES[number or 0].numpy)
            self._append(self.graphs[home], numpy_helper.from_array(array, own))
            mul = make_node("Mul", [name, own], [scaled], self.names.part(scaled, "Mul"))
            first = min(places[flat.reader(slot)][1] for slot in slots)
            self.added.setdefault(home, []).append((first, mul))
            for node in (flat.reader(slot) for slot in slots):
                for index, read in enumerate(flat.inputs_of(node)):
                    if read == value:
                        self.messages[node].input[index] = scaled

    @cached_property
    def _places(self) -> Mapping[int, tuple[int, int]]:
        """By node, its graph and where it stands there."""
        bodies = enumerate(self.flat.bodies)
        return {n: (b, i) for b, body in bodies for i, n in enumerate(body.nodes)}

    def _append(self, graph: GraphProto, message: TensorProto) -> None:
        graph.initializer.append(message)
        if self.flat.ir_version < FIRST_IR_WITH_OVERRIDES:
            info = onnx.helper.make_tensor_value_info(message.name, message.data_type, message.dims)
            graph.input.append(info)

    def _cast(self, value: int, read: str, made: str, number: int) -> None:
        node = make_node("Cast", [read], [made], self.names.part(made, "Cast"), to=number)
        home, producer = self.flat.home[value], self.flat.producer[value]
        place = 0 if producer < 0 else self._places[producer][1] + 1
        self.added.setdefault(home, []).append((place, node))

    def _constant(
        self, value: int, exponent: int, slots: Sequence[int]
    ) -> tuple[StoredTensor, bool]:
        """Return a constant, and whether it is short, in 16 bits, and would lose digits so."""
        tensor = stored_tensor(self.flat, value)
        assert tensor is not None, "constants are scaled"
        if tensor.dtype not in {t.number for t in LOW.values()} or tensor.size > MOST_COPIED:
            return tensor, False
        n_values = self.flat.n_values
        is_factor = any(e in self.factors for e in (value, *(n_values + s for s in slots)))
        array = np.asarray(tensor.numpy()).astype(np.float32)
        dtype = _DTYPES[tensor.dtype]
        return tensor, _loses_digits(array, exponent, dtype, is_factor=is_factor)

    def _message(
        self, tensor: StoredTensor, exponent: int, name: str, *, wide: bool
    ) -> TensorProto:
        """Return the message of a constant times a power of two."""
        number = FLOAT32.number if wide else tensor.dtype
        dtype = _DTYPES[int(number)]
        if tensor.size <= MOST_COPIED:
            array: Array = np.asarray(tensor.numpy())
            with np.errstate(all="ignore"):
                scaled = np.ldexp(array.astype(_wide(array)), exponent)
            return numpy_helper.from_array(to_low(scaled, dtype), name)
        source = tensor_of(tensor)
        converted = ConvertedTensor(source, dtype, exponent=exponent, name=name)
        message = TensorProto(name=name, data_type=dtype.number, dims=tensor.dims)
        refer(message, Place(HELD, len(self.flat.files.held) + len(self.held), converted.nbytes))
        self.held.append(Held(lambda: stored(converted), lambda: converted))
        return message

    def _place_added(self) -> list[str]:
        """Put what was added where it belongs; return what nodes without a name were called.

        Graphs inside others come first: the nodes of a graph are copied, with the graphs in them.
        """
        for home, items in sorted(self.added.items(), reverse=True):
            graph = self.graphs[home]
            nodes = [*_merged(graph.node, items)]
            copies = [NodeProto.FromString(n.SerializeToString()) for n in nodes]
            del graph.node[:]
            graph.node.extend(copies)
        return [*self._called(MAIN)]

    def _called(self, number: int) -> Iterator[str]:
        """Yield the names of the nodes of a graph, and of those inside them, in order."""
        own = self.flat.bodies[number].nodes
        for node in _merged(own, self.added.get(number, ())):
            if isinstance(node, NodeProto):
                yield node.name
                continue
            yield self.flat.node_names[node]
            for body in self.flat.bodies_in(node):
                yield from self._called(body)


def _merged(own: Iterable[T], added: Iterable[tuple[int, NodeProto]]) -> Iterator[T | NodeProto]:
    """Yield what a graph has, and in front of each place what was added there, the last first."""
    by_place: dict[int, list[NodeProto]] = {}
    for place, node in added:
        by_place.setdefault(place, []).append(node)
    last = 0
    for last, held in enumerate(own, 1):
        yield from reversed(by_place.get(last - 1, ()))
        yield held
    yield from reversed(by_place.get(last, ()))


def _loses_digits(array: Array, exponent: int, dtype: DType, *, is_factor: bool) -> bool:
    """Tell whether a constant in 16 bits loses digits that count when it takes a power of two.

    No digit of a single number may be lost, an epsilon for one. What is added to a scaled value
    becomes subnormal where that value does, and is as exact as it. Of a factor no row and no
    column, along any axis, may lose more than rounding it has cost: half an epsilon of its norm.
    """
    scaled = np.ldexp(np.where(np.isfinite(array), array, 0), exponent)
    with np.errstate(over="ignore"):
        lost = to_low(scaled, dtype).astype(np.float64) - scaled
    if array.size == 1 or not np.isfinite(lost).all():
        return bool(lost.any())
    if not is_factor:
        return False
    wide = scaled.astype(np.float64)
    for axis in range(array.ndim):
        others = tuple(other for other in range(array.ndim) if other != axis)
        of_slices = np.sqrt((lost**2).sum(others)), np.sqrt((wide**2).sum(others))
        if (of_slices[0] > dtype.epsilon / 2 * of_slices[1]).any():
            return True
    return False


def _graphs(attribute: AttributeProto) -> list[GraphProto]:
    own = [attribute.g] if attribute.type == AttributeProto.GRAPH else []
    return [*own, *attribute.graphs]


def _wide(array: Array) -> type[np.float32 | np.float64]:
    return np.float64 if array.dtype == np.float64 else np.float32


def _scale_attribute(message: NodeProto, scaled: ScaledAttribute, exponent: int) -> None:
    """Multiply an attribute of a node by a power of two; one that is not there has its default."""
    for attribute in message.attribute:
        if attribute.name == scaled.name and attribute.type == AttributeProto.TENSOR:
            array = numpy_helper.to_array(attribute.t)
            wide = np.ldexp(array.astype(_wide(array)), exponent)
            attribute.t.CopyFrom(
                numpy_helper.from_array(wide.astype(array.dtype), attribute.t.name)
            )
            return
        if attribute.name == scaled.name:
            attribute.f = math.ldexp(attribute.f, exponent)
            return
    if scaled.default:
        number = math.ldexp(float(np.float32(scaled.default)), exponent)
        message.attribute.append(make_attribute(scaled.name, number))
