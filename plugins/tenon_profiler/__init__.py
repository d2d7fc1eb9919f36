"""The profiler: tables of time and memory, traces for TensorBoard and Perfetto, stacks."""
