"""TensorBoard event files through tensorboardX."""
