"""Models and files: reading and writing, external data, whole or not at all."""
