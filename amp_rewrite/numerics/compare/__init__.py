"""Verify: how far a rewritten model is from the original."""
