"""Losses that are added to a model."""
