"""The one gate to OpenVINO."""
