"""Errors of one run of a step: the first value that is not finite, and underflow."""
