"""The export target ``onnx``: a captured graph as an ONNX model."""
