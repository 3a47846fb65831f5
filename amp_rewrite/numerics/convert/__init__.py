"""From a float32 model and data to a low-precision model with a verdict: one step a file."""
