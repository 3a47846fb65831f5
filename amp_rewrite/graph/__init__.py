"""Models and graphs: loading, saving, element types and the type graph."""
