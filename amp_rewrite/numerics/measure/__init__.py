"""Measure: what nodes and casts take on a device, and which painting is fastest there."""
