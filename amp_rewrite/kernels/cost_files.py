"""Tables of costs as files: those that the package brings, and those of users."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from amp_rewrite import targets
from amp_rewrite.base.processor import onednn_instructions
from amp_rewrite.dtypes import FLOAT32, LOW, DType
from amp_rewrite.errors import KernelTableError, OptionError
from amp_rewrite.graph.flat import FlatGraph
from amp_rewrite.kernels.costs import (
    ANY,
    LEAST_ROUNDING,
    NONE,
    UNKNOWN,
    CastRate,
    CostTable,
    Rate,
)
from amp_rewrite.kernels.kernel_table import check_format, shipped

FORMAT_VERSION = 1

_REMAKE = "make one with `amp-rewrite measure-costs --provider PROVIDER -o costs.json`"
_BROKEN = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)
_TYPES = (FLOAT32.name, *LOW)
_DIGITS = 16


def of_target(target: targets.Target, low: DType) -> CostTable | None:
    """Return what is known of a target's costs in a low type; None if nothing is.

    Of several processors it is the table of the one at hand; of one that none was measured on, the
    last.

    Raises:
        KernelTableError: The table cannot be read.
    """
    there = [name for flag, name in target.costs.items() if flag in onednn_instructions()]
    name = next(iter([*there, *[*target.costs.values()][-1:]]), None)
    table = None if name is None else load(name)
    return table if table is not None and table.takes_low(low) else None


def chosen_table(
    target: targets.Target, low: DType, costs: CostTable | str | Path | None
) -> CostTable | None:
    """Return the table by which it is chosen what becomes low: a given one, else the target's.

    Raises:
        KernelTableError: It cannot be read.
        OptionError: The given one is of another provider than the target's, or lacks the type.
    """
    if costs is None:
        return of_target(target, low)
    if costs is UNKNOWN:
        return None
    table = costs if isinstance(costs, CostTable) else _table_named(str(costs))
    place = table.name or "costs"
    if target.provider not in (None, table.provider):
        raise OptionError(
            "the costs were measured on another provider than the target's",
            where=place,
            found=table.provider,
            expected=f"{target.provider}, that of target {target.name}",
            remedy="name the target that runs there, or measure on this one",
        )
    if table.rates and not table.takes_low(low):
        raise OptionError(
            f"the costs say nothing of {low.name}",
            where=place,
            remedy=f"measure them: `amp-rewrite measure-costs --precision {low.name}`",
        )
    return table if table.takes_low(low) else None


def _table_named(name: str) -> CostTable:
    """Return a table that the package brings, or else the one in a user's file."""
    shipped_names = {table for target in targets.TARGETS for table in target.costs.values()}
    return load(name) if name in shipped_names else read_costs(name)


def check_model(table: CostTable, flat: FlatGraph) -> None:
    """Refuse a table with the costs of single nodes of another model.

    Raises:
        OptionError: It has such costs.
    """
    if table.nodes and table.model != digest_of(flat):
        raise OptionError(
            "the costs were measured of the nodes of another model",
            where=table.name or "costs",
            remedy="measure this model: `amp-rewrite convert --measure`; or use a table of "
            "`amp-rewrite measure-costs`, which is for any model",
        )


@cache
def load(name: str) -> CostTable:
    """Return a table that is shipped, read once per process.

    Raises:
        KernelTableError: There is no such table, or it cannot be read.
    """
    return shipped("costs", name, "costs", lambda data: parse(data, name))


def read_costs(path: str) -> CostTable:
    """Return the table in a user's file, read again only when the file has changed.

    Raises:
        KernelTableError: It cannot be read, or is no table of costs; one line says where and why.
    """
    try:
        stat = Path(path).stat()
    except (OSError, ValueError) as error:  # ValueError: text that no path can have
        raise _unreadable_error(path, error) from error
    return _read_as_of(path, stat.st_mtime_ns, stat.st_size)


def read_table(path: str) -> dict[str, Any]:
    """Return the JSON of a table of a user, which was checked.

    Raises:
        KernelTableError: It cannot be read, or is no table of costs.
    """
    read_costs(path)
    return json.loads(Path(path).read_text("utf-8"))


@cache
def _read_as_of(path: str, _changed: int, _size: int) -> CostTable:
    try:
        data = json.loads(Path(path).read_text("utf-8"))
        if not isinstance(data, dict):
            raise TypeError(f"it holds a {type(data).__name__}, not an object")
        return parse(data, path)
    except KernelTableError as error:
        raise KernelTableError(
            error.what, where=path, found=error.found, expected=error.expected, remedy=_REMAKE
        ) from error
    except _BROKEN as error:
        raise _unreadable_error(path, error) from error


def _unreadable_error(path: str, error: Exception) -> KernelTableError:
    told = f"no key {error.args[0]!r}" if type(error) is KeyError else str(error)
    return KernelTableError(
        "the table of costs cannot be read", where=path, found=told, remedy=_REMAKE
    )


def parse(data: Mapping[str, Any], name: str) -> CostTable:
    """Return the table that a decoded JSON file holds.

    Raises:
        KernelTableError: The file has another format version.
        ValueError: A number is not finite or below zero, a name is of no family or type, or an
            operator is of two families.
        KeyError, TypeError, AttributeError: It is not such a table.
    """
    check_format(data, "costs", FORMAT_VERSION)
    families = _families(data["families"])
    family_names = {*data["families"], ANY, NONE}
    rates: dict[tuple[str, str], list[Rate]] = {}
    for place, row in _rows(data, "costs"):
        key = _check_family(row["family"], family_names, place), _type(row["type"], place)
        rates.setdefault(key, []).append(_rate(row, place))
    casts = parse_casts(data["casts"], family_names)
    joins = {
        (
            _check_family(row["producer"], family_names, place),
            _check_family(row["consumer"], family_names, place),
            _type(type_, place),
        ): _rate(saved, place)
        for place, row in _rows(data, "joins")
        for type_, saved in row["saves"].items()
    }
    nodes = {
        _text(row["result"], place): {
            _type(key, place): _number(taken, place)
            for key, taken in row.items()
            if key != "result"
        }
        for place, row in _rows(data, "nodes")
    }
    return CostTable(
        name,
        *(_text(data[key], key) for key in ("runtime", "device", "source", "provider", "driver")),
        families=families,
        with_products=frozenset(data.get("with_products", ())),
        one_type=frozenset(data.get("one_type", ())),
        rates={k: tuple(sorted(rows, key=lambda rate: rate.least)) for k, rows in rates.items()},
        casts=casts,
        joins=joins,
        nodes=nodes,
        together=tuple(
            tuple(_text(result, place) for result in row) for place, row in _rows(data, "together")
        ),
        model=_text(data["model"]["digest"], "model") if nodes else "",
        least_rounding=_number(data.get("least_rounding", LEAST_ROUNDING), "least_rounding"),
    )


def parse_casts(rows: list[Any], families: Collection[str] = (ANY, NONE)) -> tuple[CastRate, ...]:
    """Return the rates of casts that the rows of a file hold.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: They are none; `families` are known.
    """
    placed = _rows({"casts": rows}, "casts")
    return tuple(_cast(row, families, place) for place, row in placed)


def digest_of(flat: FlatGraph) -> str:
    """Return what tells a model from others: its operators, and what each reads and makes."""
    told = hashlib.sha256()
    for node in range(flat.n_nodes):
        called = flat.called(node)
        values = (*flat.inputs_of(node), *flat.outputs_of(node))
        names = [flat.value_names[value] if value >= 0 else "" for value in values]
        told.update("\0".join((called.domain, called.op_type, *names, "\n")).encode())
    return told.hexdigest()[:_DIGITS]


def to_text(table: Mapping[str, Any]) -> str:
    """Return the JSON of a table: a family or a row a line."""
    parts: list[str] = []
    for key, content in table.items():
        if isinstance(content, dict) and key == "families":
            rows = [f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in content.items()]
            parts.append(_block(key, "{}", rows))
        elif key in ("costs", "casts", "joins", "nodes", "together"):
            parts.append(_block(key, "[]", [f"  {json.dumps(row)}" for row in content]))
        else:
            parts.append(f" {json.dumps(key)}: {json.dumps(content)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _block(key: str, ends: str, rows: Iterable[str]) -> str:
    return f" {json.dumps(key)}: {ends[0]}\n" + ",\n".join(rows) + f"\n {ends[1]}"


def to_json(table: CostTable, nodes_of: int = 0) -> dict[str, Any]:
    """Return a table as `parse` reads it.

    Args:
        table: The table.
        nodes_of: How many nodes the model has that its nodes were measured of.
    """
    families: dict[str, list[str]] = {}
    for operator, family in table.families.items():
        families.setdefault(family, []).append(operator)
    joins: dict[tuple[str, str], dict[str, Any]] = {}
    for (producer, consumer, type_), rate in table.joins.items():
        joins.setdefault((producer, consumer), {})[type_] = _rate_content(rate)
    content: dict[str, Any] = {
        "version": FORMAT_VERSION,
        "provider": table.provider,
        "runtime": table.runtime,
        "device": table.device,
        "driver": table.driver,
        "source": table.source,
        "with_products": sorted(table.with_products),
        "one_type": sorted(table.one_type),
        "least_rounding": table.least_rounding,
        "families": families,
        "costs": [
            {
                "family": family,
                "type": type_,
                "from": rate.least,
                **_rate_content(rate),
                "mac": rate.mac,
            }
            for (family, type_), rates in table.rates.items()
            for rate in rates
        ],
        "casts": [
            {
                "to": row.to,
                "producer": row.producer,
                "consumer": row.consumer,
                **_rate_content(row.rate),
            }
            for row in table.casts
        ],
        "joins": [
            {"producer": producer, "consumer": consumer, "saves": saves}
            for (producer, consumer), saves in joins.items()
        ],
    }
    if table.nodes:
        content["model"] = {"nodes": nodes_of, "digest": table.model}
        content["nodes"] = [{"result": name, **taken} for name, taken in table.nodes.items()]
        content["together"] = [list(group) for group in table.together]
    return content


def _rate_content(rate: Rate) -> dict[str, float]:
    return {"call": rate.call, "element": rate.element}


def _rows(data: Mapping[str, Any], key: str) -> list[tuple[str, Any]]:
    """Return the rows of a list of a file, each with its place."""
    rows = data.get(key, []) if key in ("nodes", "together") else data[key]
    if not isinstance(rows, list):
        raise TypeError(f"{key} is no list")
    return [(f"{key}[{number}]", row) for number, row in enumerate(rows)]


def _families(data: Mapping[str, list[str]]) -> Mapping[str, str]:
    """Return the family of each operator.

    Raises:
        ValueError: An operator is of two families.
    """
    families: dict[str, str] = {}
    for family, operators in data.items():
        for operator in operators:
            if families.setdefault(operator, family) != family:
                raise ValueError(f"{operator} is of two families")
    return families


def _check_family(family: str, families: Collection[str], place: str) -> str:
    if family not in families:
        raise ValueError(f"{place}: {family} is no family")
    return family


def _type(name: object, place: str) -> str:
    if name not in _TYPES:
        raise ValueError(f"{place}: {name!r} is not one of {', '.join(_TYPES)}")
    return str(name)


def _text(content: object, place: str) -> str:
    if not isinstance(content, str):
        raise TypeError(f"{place} is {content!r}, not a text")
    return content


def _cast(row: Mapping[str, Any], families: Collection[str], place: str) -> CastRate:
    producer, consumer = (
        _check_family(row[end], families, place) for end in ("producer", "consumer")
    )
    return CastRate(_type(row["to"], place), producer, consumer, _rate(row, place))


def _rate(row: Mapping[str, Any], place: str) -> Rate:
    """Return a rate.

    Raises:
        ValueError: A number is negative or not finite.
    """
    call, element, mac = (_number(row.get(key, 0), place) for key in ("call", "element", "mac"))
    return Rate(call, element, mac, int(_number(row.get("from", 0), place)))


def _number(content: object, place: str) -> float:
    if isinstance(content, bool) or not isinstance(content, int | float):
        raise TypeError(f"{place}: {content!r} is no number")
    if not 0 <= content < math.inf:
        raise ValueError(f"{place}: a negative cost, or none: {content!r}")
    return float(content)
