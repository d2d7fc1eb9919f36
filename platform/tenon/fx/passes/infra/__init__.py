"""The base class of passes, the pass manager, and the capability-based partitioner."""
