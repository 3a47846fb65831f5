"""Making ONNX nodes: operators by name, with types, shapes and names."""
