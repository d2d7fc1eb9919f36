"""First-party plugin ``tenon_target_onnx``: the export target ``onnx``."""
