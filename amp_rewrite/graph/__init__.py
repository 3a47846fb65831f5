"""Models and graphs: loading, saving, element types, the type graph and its invariants."""
