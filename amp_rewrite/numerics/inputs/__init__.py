"""Inputs that a model is tried with where there are no data: plausible ones, and stress."""
