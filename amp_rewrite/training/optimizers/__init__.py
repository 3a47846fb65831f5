"""Gradients of a loss, and the updates that minimize it."""
