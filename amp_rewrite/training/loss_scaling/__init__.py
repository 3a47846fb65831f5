"""Loss scales, the finite check, the conditional update."""
