"""A model with a loss in, a training step and the session that runs it out."""
