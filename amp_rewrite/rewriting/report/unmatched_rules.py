"""Rules of op lists about single nodes that match nothing in the model: a name may be misspelt."""

from __future__ import annotations

from amp_rewrite.graph.nearest import nearest
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.report.records import UnmatchedRule
from amp_rewrite.rewriting.report.report_lines import unmatched_line


def unmatched_rules(context: PaintContext) -> tuple[UnmatchedRule, ...]:
    """Return the rules whose node, or whose type variable of a node, is not in the model."""
    variables = _variables(context)
    return tuple(
        UnmatchedRule(rule.node, rule.variable, rule.where)
        for rule in context.lists.node_rules
        if rule.node not in variables or rule.variable not in (None, *variables[rule.node])
    )


def unmatched_warning(context: PaintContext) -> str | None:
    """Return one line about these rules, with what the first may have meant; None if all match."""
    rules = unmatched_rules(context)
    if not rules:
        return None
    first, variables = rules[0], _variables(context)
    if first.node in variables:
        meant = variables[first.node]
        remedy = f"of node {first.node!r} {' or '.join(meant) or 'nothing'} is float32"
    elif meant := nearest(first.node, context.type_graph.flat.node_names):
        remedy = f"did you mean {' or '.join(map(repr, meant))}?"
    else:
        remedy = "`amp-rewrite explain MODEL` lists the node names"
    return f"{unmatched_line(rules)}; {remedy}"


def _variables(context: PaintContext) -> dict[str, tuple[str, ...]]:
    """Return node name -> its float32 type variables, for the nodes that rules name."""
    graph, wanted = context.type_graph, {rule.node for rule in context.lists.node_rules}
    names = enumerate(graph.flat.node_names) if wanted else ()
    found: dict[str, tuple[str, ...]] = {}
    for node, name in names:
        if name in wanted:
            kinds = [graph.kind_of(vertex) for vertex in graph.vertices_of(node)]
            found[name] = (*found.get(name, ()), *(v for kind in kinds for v in kind.variables))
    return found
