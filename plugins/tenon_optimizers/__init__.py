"""First-party optimizers and learning-rate schedules."""
