"""A model while a training step is built on it."""
