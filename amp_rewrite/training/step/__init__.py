"""A training step as an ordinary ONNX model."""
