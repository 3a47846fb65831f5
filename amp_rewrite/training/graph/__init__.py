"""What a model becomes while a training step is built on it."""
