"""Bounds of the numbers of every value, from the model alone; no data are needed."""
