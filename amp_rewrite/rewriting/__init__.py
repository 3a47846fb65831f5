"""A model in, a rewritten model and its reasons out."""
