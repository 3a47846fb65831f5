"""Models as protobuf messages: read into numbers, checked, edited and written without onnx_ir."""
