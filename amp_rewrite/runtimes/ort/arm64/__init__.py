"""ONNX Runtime on an Arm processor: this one, or an emulated one."""
