"""By which powers of two values could be multiplied, so that a model computes the same."""
