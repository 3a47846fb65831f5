"""A model whose values are multiplied by powers of two, so that they fit the low type."""
