"""The one gate to ONNX Runtime."""
