"""Fine-tuning by low-rank adapters."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from amp_rewrite.base import arguments
from amp_rewrite.base.name_patterns import suggestion
from amp_rewrite.errors import OptionError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.graph.metadata_keys import PART_KEY
from amp_rewrite.graph.step_part import Part, part_of
from amp_rewrite.training.graph.adapter import Adapter
from amp_rewrite.training.graph.freeze import changeable
from amp_rewrite.training.graph.selection import Selection, entries, matches
from amp_rewrite.training.graph.training_graph import TrainingGraph
from amp_rewrite.training.graph.weight_products import (
    WeightProduct,
    copies_factor,
    weight_products,
)

ADAPTER = "adapter"
"""The role of the states A and B: they are states of every step, trained or not."""

_SCOPE = "lora"


def lora(
    model: ir.Model,
    variables: Selection = "*",
    *,
    rank: int = 8,
    alpha: float | None = None,
    dropout: float = 0.0,
    seed: int = 0,
) -> list[str]:
    """Train low-rank adapters of some weights of a model, and nothing else of it.

    Where a MatMul or a Gemm multiplies x by a matrix W that is chosen, `alpha / rank * x A B` is
    added to `x W`. A begins with small random numbers and B with zeros, so that the model computes
    at first what it did before. All other weights are frozen, unless `unfreeze` asked for them
    before; call it afterwards for a head that is to be trained as well. Products that share a
    weight share its adapter. W may be stored in float16 or bfloat16; A and B are float32, or
    float64 where W is.

    E. Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021,
    https://arxiv.org/abs/2106.09685; the first A is that of PEFT.

    Args:
        model: What `amp_rewrite.load` returned.
        variables: Which weights: patterns for names of the weight, of its product, or of the module
            that either lies in, such as "*.q_proj|*.v_proj"; a regular expression, a variable, a
            function of a variable, or a list of these; "*" is all. Of what is chosen, matrices that
            MatMul and Gemm alone read get adapters; there must be one for each pattern.
        rank: The length between A (in, rank) and B (rank, out).
        alpha: What the change is scaled by, times the rank; None is the rank.
        dropout: The share of the numbers in x that A does not see in training.
        seed: Where the random numbers of A begin.

    Returns:
        The modules that have adapters now; their states are called `<module>.lora_A` and `_B`.

    Raises:
        OptionError: A pattern matches no such weight, one has an adapter already, gradients have
            been computed, or an argument is of a kind that it cannot be.

    Examples:
        >>> model = amp.load("model.onnx")
        >>> amp.lora(model, "w*", rank=2)
        ['w1', 'w2']
    """
    rank = arguments.integer("rank", rank, low=1)
    scaled = rank if alpha is None else alpha
    expected = "a number above 0"
    scaled = arguments.number("alpha", scaled, low=0, above=True, expected=expected)
    expected = "a number from 0 to below 1"  # at 1, A would see nothing
    below = math.nextafter(1, 0)
    dropout = arguments.number("dropout", dropout, low=0, high=below, expected=expected)
    random = np.random.default_rng(arguments.integer("seed", seed))
    graph = changeable(model)
    chosen = _by_weight(_chosen(graph, _adaptable(graph), variables))
    _check_new(graph, chosen)
    _freeze_others(graph)
    modules: list[str] = []
    for products in chosen.values():
        adapter = _add(graph, products, rank, scaled, dropout, random)
        for product in products:
            _adapt_product(graph, product, adapter)
        modules.append(adapter.module)
    return modules


def _adaptable(graph: TrainingGraph) -> list[WeightProduct]:
    """Return the products whose weights nothing else reads, such as the embedding of a head."""
    products = _by_weight(weight_products(graph))
    return [p for weight, own in products.items() for p in own if len(own) == _readers(weight)]


def _chosen(
    graph: TrainingGraph, products: Sequence[WeightProduct], variables: Selection
) -> list[WeightProduct]:
    """Return the products that are meant, in their order."""
    meant: set[WeightProduct] = set()
    for entry in entries(variables):
        matched = [product for product in products if _is_meant(graph, product, entry)]
        if not matched:
            raise _nothing(entry, products)
        meant.update(matched)
    if not meant:
        raise _nothing(variables, products)
    return [product for product in products if product in meant]


def _is_meant(graph: TrainingGraph, product: WeightProduct, entry: object) -> bool:
    """Return whether one entry of a selection means a product."""
    trainable = not graph.is_frozen(str(product.weight.name))
    weight = graph.track(product.weight, "variable", trainable=trainable)
    return matches(weight, entry, "lora", names=product.names, what="weights")


def _nothing(entry: object, products: Sequence[WeightProduct]) -> OptionError:
    wanted = entry.pattern if isinstance(entry, re.Pattern) else entry  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    paths = [name for product in products for name in (product.module, *product.names)]
    names = [*paths, *(path.rpartition(".")[2] for path in paths)]
    plain = str(wanted).replace("*", "").strip(".")  # pyright: ignore[reportUnknownArgumentType]
    return OptionError(
        "the pattern matches no weight that MatMul or Gemm alone read",
        where="lora",
        found=repr(wanted),
        expected=suggestion(plain, names, "the name of one" if names else "a model that has one"),
        remedy="* stands for any text in a name",
    )


def _by_weight(products: Iterable[WeightProduct]) -> dict[ir.Value, list[WeightProduct]]:
    products_of: dict[ir.Value, list[WeightProduct]] = {}
    for product in products:
        products_of.setdefault(product.weight, []).append(product)
    return products_of


def _check_new(graph: TrainingGraph, weights: Iterable[ir.Value]) -> None:
    """Refuse weights that have an adapter."""
    adapted = {adapter.weight for adapter in graph.adapters}
    for weight in weights:
        if weight.name in adapted:
            raise OptionError(
                "the weight has an adapter already",
                where=weight.name,
                remedy="choose each weight once, or load the model again",
            )


def _freeze_others(graph: TrainingGraph) -> None:
    """Freeze what nobody asked to train, but adapters."""
    for state in graph.weights():
        if state.role != ADAPTER:
            state.trainable = not graph.asked.setdefault(state.name, True)


def _add(
    graph: TrainingGraph,
    products: Sequence[WeightProduct],
    rank: int,
    alpha: float,
    dropout: float,
    random: np.random.Generator,
) -> Adapter:
    """Add the states A and B of a weight.

    A is uniform within 1 / sqrt(in), as PyTorch initializes a Linear, and B is 0.
    """
    first, weight = products[0], products[0].weight
    assert weight.shape is not None, "the weight is a matrix"
    rows, columns = weight.shape.numpy()
    inputs, outputs = (columns, rows) if first.output_first else (rows, columns)
    dtype = np.float64 if weight.dtype is ir.DataType.DOUBLE else np.float32
    bound = 1 / np.sqrt(max(inputs, 1))
    a = random.uniform(-bound, bound, (inputs, rank)).astype(dtype)
    taken = {adapter.module for adapter in graph.adapters}
    module = str(weight.name) if first.module in taken else first.module
    states = [
        graph.add_weight(f"{module}.{name}", array, ADAPTER)
        for name, array in (("lora_A", a), ("lora_B", np.zeros((rank, outputs), dtype)))
    ]
    adapter = Adapter(
        weight=str(weight.name),
        module=module,
        a=states[0].name,
        b=states[1].name,
        rank=rank,
        alpha=alpha,
        dropout=dropout,
        output_first=first.output_first,
    )
    graph.adapters.append(adapter)
    return adapter


def _readers(weight: ir.Value) -> int:
    """Return how many nodes of the model read a weight, behind what casts or transposes it."""
    count = int(weight.is_graph_output())
    for use in weight.uses():
        if part_of(use.node) is not None:
            continue
        count += _readers(use.node.outputs[0]) if copies_factor(use.node) else 1
    return count


def _adapt_product(graph: TrainingGraph, product: WeightProduct, adapter: Adapter) -> None:
    """Let a product with a weight have the result that it has with the adapted weight.

    The values that others know stay the ones that they know: the node that computed the result
    becomes the sum, and a new node computes what it computed. The new nodes belong to the forward
    pass. The adapter's states are there already.
    """
    body = product.node.graph
    assert isinstance(body, ir.Graph), "the product was found in a graph"
    main = graph.scoped(_SCOPE, Part.ARITHMETIC)
    b = main if body is graph.model.graph else main.child(body)
    before = len(b.added)
    change = b.cast_like(_change(b, graph, product, adapter), product.node.outputs[0])
    _add_to(product.node, change)
    for node in b.added[before:]:
        node.metadata_props.pop(PART_KEY)
    body.sort()


def _change(b: Builder, graph: TrainingGraph, product: WeightProduct, adapter: Adapter) -> ir.Value:
    """Return `scale * x A B`, where `x W` is the product, or `scale * x B^T A^T` of `x W^T`.

    W is (in, out); the second is for a weight that is used in both directions.
    """
    x = _other_factor(b, product)
    dtype = b.type_of(x)
    a, c = (b.cast(graph.states[name].value, dtype) for name in (adapter.a, adapter.b))
    if product.output_first != adapter.output_first:
        a, c = b.transpose(c, [1, 0]), b.transpose(a, [1, 0])
    if adapter.dropout:
        ratio = b.constant(adapter.dropout, ir.DataType.FLOAT)
        x = b.op("Dropout", x, ratio, b.constant(np.array(False)))
    scale = adapter.scale * product.node.attributes.get_float("alpha", 1.0)
    return b.matmul(_times(b, b.matmul(x, a), scale), c)


def _other_factor(b: Builder, product: WeightProduct) -> ir.Value:
    """Return what the weight is multiplied with, transposed where the product transposes it."""
    x = product.node.inputs[0]
    assert x is not None, "the factors of a product are not optional"
    return b.transpose(x, [1, 0]) if product.node.attributes.get_int("transA", 0) else x


def _times(b: Builder, x: ir.Value, number: float) -> ir.Value:
    return x if number == 1 else b.mul(x, number)


def _add_to(node: ir.Node, change: ir.Value) -> None:
    """Let a node add a change to what it has computed, which a new node computes."""
    result = node.outputs[0]
    before = ir.Node(
        node.domain,
        node.op_type,
        node.inputs,
        node.attributes.values(),
        num_outputs=1,
        name=node.name,
        metadata_props=node.metadata_props,
    )
    old = before.outputs[0]
    old.name, old.type, old.shape = f"{result.name}/base", result.type, result.shape
    node.prepend(before)
    node.op_type, node.name = "Add", f"{node.name}/adapted" if node.name else node.name
    node.attributes.clear()
    node.resize_inputs(2)
    node.replace_input_with(0, old)
    node.replace_input_with(1, change)
