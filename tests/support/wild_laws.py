"""What holds for a wild model and what each command makes of it.

The result is valid if the source was, loads if the source did, has the same inputs and outputs,
computes the same once its types are widened, is not changed by a second run, and has the types that
the report says.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
import onnxruntime as ort
from wild_models.generate import WildModel
from worker_loop import BrokenLawError

import amp_rewrite as amp
from amp_rewrite import targets
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.elements import element
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.io.read_object import infer_types
from amp_rewrite.numerics.convert.file import Asked, convert_file
from amp_rewrite.numerics.repair import repair
from amp_rewrite.oplists import OpLists
from amp_rewrite.rewriting.plan.options import RewriteOptions
from amp_rewrite.rewriting.widen import Raised

CLOSE = 1e-5
"""How far an output may be away, relative to its largest magnitude."""

NO_KERNEL = "NOT_IMPLEMENTED"
"""What ONNX Runtime says of an operator that its CPU provider has not for a type."""

PRECISIONS = ("float16", "bfloat16")
TARGETS = tuple(get_args(targets.TargetName))
SIXTEEN = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)


@dataclass(frozen=True)
class Source:
    """A model in a file, and what is known of it."""

    path: Path
    proto: onnx.ModelProto
    feeds: Mapping[str, np.ndarray]

    @cached_property
    def fault(self) -> str | None:
        """What onnx's checker says against it."""
        return invalid(self.proto)

    @cached_property
    def refusal(self) -> str | None:
        """What ONNX Runtime says against it."""
        return refused(self.path.read_bytes())

    @cached_property
    def numbers(self) -> dict[str, np.ndarray] | None:
        """What it computes when all floats are float32; None if it does not run."""
        try:
            return computed(amp.widen(self.path, keep_io_types=False).model, self.feeds)
        except amp.AmpError:
            return computed(self.path, self.feeds)


def write(made: WildModel, folder: Path) -> Source:
    """Write a model; what is valid of it is decided with its nodes in order."""
    path = folder / "source.onnx"
    path.write_bytes(made.model.SerializeToString())
    return Source(path, made.sorted, made.feeds)


def invalid(proto: onnx.ModelProto) -> str | None:
    try:
        onnx.checker.check_model(proto, full_check=True)
    except Exception as error:  # noqa: BLE001 onnx raises what it likes
        return " ".join(str(error).split())[:300]
    return None


def refused(content: bytes) -> str | None:
    """Return what ONNX Runtime says when it loads a model as users do; None for nothing."""
    try:
        ort.InferenceSession(content, _quiet(), providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 its errors have no common type
        return " ".join(str(error).split())[:300]
    return None


def computed(model: Any, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray] | None:
    """Return what a model computes without optimisations; None if that does not run."""
    options = _quiet()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    content = model.read_bytes() if isinstance(model, Path) else amp.to_proto(model)
    content = content if isinstance(content, bytes) else content.SerializeToString()
    try:
        session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        known = {value.name for value in session.get_inputs()}
        given = {name: array for name, array in feeds.items() if name in known}
        return dict(zip(names, session.run(names, given), strict=True))  # pyright: ignore[reportReturnType]
    except Exception:  # noqa: BLE001 its errors have no common type
        return None


def _quiet() -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return options


def check_result(source: Source, path: Path, *, keeps_types: bool, close: bool = True) -> None:
    """Check what a command wrote: valid, loads, the same ends, the same numbers.

    Raises:
        BrokenLawError: Something of it does not hold.
    """
    result = onnx.load(path)
    fault = invalid(result)
    if fault and not source.fault:
        raise BrokenLawError(f"not valid: {fault}")
    refusal = refused(path.read_bytes()) if not source.refusal else None
    if refusal and NO_KERNEL not in refusal:
        raise BrokenLawError(f"does not load: {refusal}")
    _check_ends(source.proto, result, keeps_types=keeps_types)
    if close and source.numbers is not None:
        check_numbers(source, amp.widen(path, keep_io_types=False).model)


def _check_ends(before: onnx.ModelProto, after: onnx.ModelProto, *, keeps_types: bool) -> None:
    for kind in ("input", "output"):
        old, new = ([*getattr(m.graph, kind)] for m in (before, after))
        if [v.name for v in old] != [v.name for v in new]:
            raise BrokenLawError(f"other {kind}s: {[v.name for v in new]}")
        for a, b in zip(old, new, strict=True):
            if a.type.tensor_type.shape != b.type.tensor_type.shape:
                raise BrokenLawError(f"another shape: {b.name}")
            if keeps_types and a.type.tensor_type.elem_type != b.type.tensor_type.elem_type:
                raise BrokenLawError(f"another type: {b.name}")


def check_numbers(source: Source, model: Any) -> None:
    """Check that a model computes what the source does.

    Raises:
        BrokenLawError: It does not.
    """
    expected, found = source.numbers, computed(model, source.feeds)
    if expected is None:
        return
    if found is None:
        raise BrokenLawError("the widened result does not run")
    for name, array in expected.items():
        a, b = (np.asarray(v).astype(np.float64) for v in (array, found[name]))
        scale = np.abs(a[np.isfinite(a)]).max(initial=1.0)
        if a.shape != b.shape or not np.allclose(a, b, 0, CLOSE * scale, equal_nan=True):
            error = np.abs(a - b).max() / scale if a.shape == b.shape else b.shape
            raise BrokenLawError(f"{name} differs by {error} of its peak")


def check_again(path: Path, again: Path) -> None:
    """Check that a second run has written the same bytes.

    Raises:
        BrokenLawError: It has not.
    """
    if path.read_bytes() != again.read_bytes():
        raise BrokenLawError("a second run changes the file")


def check_said(result: amp.RewriteResult) -> None:
    """Check that every port of every node has the type that the report says.

    Raises:
        BrokenLawError: One has another.
    """
    types, low = infer_types(result.model), result.options.low.number
    graph, flat = result.context.type_graph, result.context.type_graph.flat
    written = _by_name(result.model)
    for number, name in enumerate(flat.node_names):
        op_type = flat.called(number).op_type
        if number in result.removed or op_type in ("Constant", "Cast") or name not in written:
            continue
        node = written[name]
        reads = graph.reads[flat.input_start[number] : flat.input_start[number + 1]]
        writes = graph.writes[flat.output_start[number] : flat.output_start[number + 1]]
        inputs = zip(node.inputs, reads, strict=False)
        for value, vertex in (*inputs, *zip(node.outputs, writes, strict=False)):
            if vertex == ABSENT or value is None:
                continue
            if (element(types[value]) == low) != result.painting.is_allow(vertex):
                raise BrokenLawError(f"{name} is not as the report says: {types[value]}")


def _by_name(model: Any) -> dict[str, Any]:
    """Return the nodes of a model whose names are theirs alone."""
    nodes = list(model.graph.all_nodes())
    times = Counter(node.name for node in nodes)
    return {node.name: node for node in nodes if times[node.name] == 1}


def _convert(source: Source, rng: random.Random) -> None:
    """Convert for any target, by the rules alone."""
    target = targets.find(rng.choice(TARGETS))
    options: dict[str, Any] = {
        "precision": rng.choice(target.precisions),
        "target": target.name,
        "keep_io_types": rng.random() < 0.7,
        "weights": rng.choice(("convert", "convert", "cast")),
        "inline_functions": rng.random() < 0.2,
    }
    first, again = (source.path.with_name(f"{name}.onnx") for name in ("result", "again"))
    result = amp.rewrite(source.path, **options)
    result.save(first)
    check_result(source, first, keeps_types=options["keep_io_types"] is True)
    check_said(result)
    amp.rewrite(first, **options).save(again)
    check_again(first, again)


def _convert_for_openvino(source: Source, rng: random.Random) -> None:
    """Convert as the command does, which may raise the opset."""
    target = rng.choice(("openvino", "openvino", "cuda", "tensorrt"))
    options = RewriteOptions(precision="bfloat16", target=target)
    done = convert_file(source.path, options, Asked(), lambda *_: None)
    first, again = (source.path.with_name(f"{name}.onnx") for name in ("result", "again"))
    done.result.save(first)
    if done.raised is not None:
        check_numbers(source, amp.widen(done.raised.model, keep_io_types=False).model)
    check_result(source, first, keeps_types=True)
    convert_file(first, options, Asked(), lambda *_: None).result.save(again)
    check_again(first, again)


def _raise_opset(source: Source, rng: random.Random) -> None:
    """Move to a newer opset; a model that cannot be moved is refused."""
    opset = rng.randint(max(imported(source.proto), 18), 25)
    try:
        raised = amp.raise_opset(source.path, opset)
    except amp.AmpError:
        return
    path = source.path.with_name("result.onnx")
    amp.save(raised.model, path)
    check_result(source, path, keeps_types=True)


def imported(proto: onnx.ModelProto) -> int:
    """Return the opset of ai.onnx."""
    return next(entry.version for entry in proto.opset_import if not entry.domain)


def _widen(source: Source, rng: random.Random) -> None:
    """Give the float32 form."""
    keeps = rng.random() < 0.7
    first, again = (source.path.with_name(f"{name}.onnx") for name in ("result", "again"))
    amp.widen(source.path, keep_io_types=keeps).save(first)
    check_result(source, first, keeps_types=keeps, close=False)
    if not _is_low(source.proto):
        found = computed(source.path, source.feeds)
        expected = None if found is None else Source(source.path, source.proto, source.feeds)
        if expected is not None and keeps:
            expected.__dict__["numbers"] = found
            check_numbers(expected, amp.load(first))
    amp.widen(first, keep_io_types=keeps).save(again)
    check_again(first, again)


def _is_low(proto: onnx.ModelProto) -> bool:
    """Tell whether a model has a Cast to 16 bits, or anything in float64."""
    casts = {
        attribute.i
        for graph in _graphs(proto)
        for node in graph
        for attribute in node.attribute
        if node.op_type == "Cast"
    }
    return bool(casts & {*SIXTEEN, onnx.TensorProto.DOUBLE})


def _graphs(proto: onnx.ModelProto) -> list[Any]:
    found: list[Any] = [proto.graph.node, *(f.node for f in proto.functions)]
    for nodes in found:
        found += [a.g.node for n in nodes for a in n.attribute if a.HasField("g")]
    return found


def _repair(source: Source, rng: random.Random) -> None:
    """Make a model low against all advice, if it is not so already, and repair that."""
    low = source
    precision, keeps = rng.choice(PRECISIONS), rng.random() < 0.5
    if rng.random() < 0.8:
        path = source.path.with_name("low.onnx")
        forced: dict[str, Any] = {"lists": all_allowed(source.proto, precision)}
        result = amp.rewrite(
            source.path, precision=precision, target="schema", keep_io_types=keeps, **forced
        )
        result.save(path)
        low = Source(path, onnx.load(path), source.feeds)
    target = rng.choice([t for t in TARGETS if t != "schema"])
    keep_io = rng.choice(("given", "given", "float32"))
    first, again = (source.path.with_name(f"{name}.onnx") for name in ("result", "again"))
    try:
        made = repair(low.path, target=target, keep_io=keep_io)
    except OptionError:  # nothing in 16 bits, or nothing that the target computes in
        return
    made.raised.save(first)
    check_result(low, first, keeps_types=keep_io == "given")
    check_raised(made.raised)
    try:
        once_more = repair(first, target=target, keep_io=keep_io)
    except OptionError:  # nothing is left in 16 bits
        return
    once_more.raised.save(again)
    check_again(first, again)


def all_allowed(proto: onnx.ModelProto, precision: str) -> OpLists:
    operators = {node.op_type for nodes in _graphs(proto) for node in nodes if not node.domain}
    return OpLists.from_names(allow=sorted(operators), precision=precision)


def check_raised(raised: Raised) -> None:
    """Check that what is said to be raised is float32 in the result.

    Raises:
        BrokenLawError: It is not.
    """
    types = infer_types(raised.model)
    graph, flat = raised.context.type_graph, raised.context.type_graph.flat
    written = _by_name(raised.model)
    for vertex in raised.plan.vertices:
        number = graph.nodes[vertex]
        node = written.get(flat.node_names[number])
        if node is None or node.op_type in ("Cast", "Constant"):
            continue
        writes = graph.writes[flat.output_start[number] : flat.output_start[number + 1]]
        for value, made in zip(node.outputs, writes, strict=False):
            if made == vertex and element(types[value]) in SIXTEEN:
                raise BrokenLawError(f"{node.name} is said to be raised and is {types[value]}")


Job = Callable[[Source, random.Random], None]
JOBS: dict[str, Job] = {
    "convert": _convert,
    "convert for openvino": _convert_for_openvino,
    "repair": _repair,
    "raise opset": _raise_opset,
    "widen": _widen,
}
"""What is done with a model, by its name."""
