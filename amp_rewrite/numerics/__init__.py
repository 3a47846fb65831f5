"""Numerics that can be trusted on a CPU: verify, calibrate, localise, search."""
