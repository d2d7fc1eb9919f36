"""End a run of ``tenon train`` that no longer improves: the section ``[plugins.early_stopping]``."""
