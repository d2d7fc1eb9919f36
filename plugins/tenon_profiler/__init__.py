"""What a program spends its time and memory on: tables, traces for TensorBoard and Perfetto, stacks."""
