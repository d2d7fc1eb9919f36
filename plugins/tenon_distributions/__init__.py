"""Probability distributions and quasirandom sequences: ``tenon.distributions``, ``tenon.quasirandom``."""
