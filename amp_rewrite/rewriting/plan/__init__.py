"""From a painting to a model: plan the casts, weights and types, then apply the plan."""
