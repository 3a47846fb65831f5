"""Calibrate: the range of every value over data."""
