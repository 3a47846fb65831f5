"""Op lists: YAML files, environment and level in, one frozen classification of operators out."""

from typing import TYPE_CHECKING

from amp_rewrite.oplists.entries import Condition, Entry, ListName, NodeRule

if TYPE_CHECKING:
    from amp_rewrite.oplists.lists import Level, OpLists, conflict_error, load_lists
else:

    def __getattr__(name):
        """Return what takes schemas and targets, which a wheel is built without."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from amp_rewrite.oplists import lists

        return getattr(lists, name)


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
