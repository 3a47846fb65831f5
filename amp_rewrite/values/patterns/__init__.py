"""Groups of nodes that a runtime computes as one operator, found in the type graph."""
