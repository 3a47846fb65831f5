"""Op lists: YAML files, environment and level in, one frozen classification of operators out."""

from amp_rewrite.oplists.entries import Condition, Entry, ListName, NodeRule
from amp_rewrite.oplists.lists import Level, OpLists, conflict_error, load_lists

__all__ = [
    "Condition",
    "Entry",
    "Level",
    "ListName",
    "NodeRule",
    "OpLists",
    "conflict_error",
    "load_lists",
]
