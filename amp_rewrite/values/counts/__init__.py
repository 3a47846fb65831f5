"""Which numbers of a model are counts, places or flags rather than data."""
