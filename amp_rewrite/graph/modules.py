"""The modules of nodes, as the framework that a model comes from calls them.

torch.onnx notes them in metadata: `pkg.torch.onnx.name_scopes` is `['', 'encoder', 'linear']`, of
which the last entry is the node, and `namespace` has the same names, with classes, between slashes.
Its exporter up to 2.8 puts them into the names of nodes: `/encoder/layers.0/MatMul`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from amp_rewrite.graph.flat import ABSENT, FlatGraph

_SCOPES, _NAMESPACE = "pkg.torch.onnx.name_scopes", "namespace"

_WHOLE_MODEL = ""


def noted_module(flat: FlatGraph, node: int) -> str:
    """Return the module that the metadata of a node names; "" if they name none."""
    notes = flat.metadata.get(node, {})
    if _SCOPES in notes:
        scopes = notes[_SCOPES].strip("[]").split(", ")
        return scopes[-2].strip("'\"") if len(scopes) > 1 else _WHOLE_MODEL
    around = notes.get(_NAMESPACE, "").split("/")
    return around[-2].split(":")[0].strip() if len(around) > 1 else _WHOLE_MODEL


def _module_in_name(name: str) -> str:
    """Return the module of `/encoder/layer.0/MatMul`: "encoder.layer.0"."""
    if not name.startswith("/"):
        return _WHOLE_MODEL
    path = list[str]()
    for part in name.split("/")[1:-1]:
        if path and part.startswith(f"{path[-1]}."):
            path[-1] = part
        else:
            path.append(part)
    return ".".join(path)


def known_as(name: str, module: str) -> tuple[str, ...]:
    """Return what may be said for a node: its name, and the modules around it, inner ones first."""
    return (name, *_around(module or _module_in_name(name)))


def _around(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition(".")[0]


def node_aliases(flat: FlatGraph, node: int) -> tuple[str, ...]:
    """Return what may be said for a node of a model; see `known_as`."""
    return known_as(flat.node_names[node], noted_module(flat, node))


def all_names(flat: FlatGraph) -> tuple[str, ...]:
    """Return the names of all nodes and modules, each once."""
    nodes = range(flat.n_nodes)
    return tuple(dict.fromkeys(name for node in nodes for name in node_aliases(flat, node)))


def nodes_by_name(flat: FlatGraph, names: Iterable[str]) -> dict[str, list[int]]:
    """Return the nodes that each of some names means; those that mean none are left out.

    A name that is both a node and a module means the node.
    """
    wanted = set(names)
    modules = wanted.difference(flat.node_names) if wanted else wanted
    found = dict[str, list[int]]()
    for node, name in enumerate(flat.node_names if wanted else ()):
        own = {name} & wanted
        for each in own | modules.intersection(node_aliases(flat, node)) if modules else own:
            found.setdefault(each, []).append(node)
    return found


def nodes_called(flat: FlatGraph, text: str) -> list[int]:
    """Return the nodes that a name means: of a node, of a module, or of a value.

    A value means the node that makes it; an input or a constant, the nodes that read it.
    """
    found = nodes_by_name(flat, [text]).get(text, [])
    if not found and text in flat.value_names:
        value = flat.value_names.index(text)
        maker = flat.producer[value]
        found = list(dict.fromkeys(flat.readers(value))) if maker == ABSENT else [maker]
    return found
