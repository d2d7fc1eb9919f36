"""Averaging parameters in place of gradients, under torch's paths."""

from tenon.distributed.algorithms.model_averaging import averagers, hierarchical_model_averager, utils

__all__ = ["averagers", "hierarchical_model_averager", "utils"]
