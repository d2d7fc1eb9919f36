"""PyTorch's older path of ``hub.load_state_dict_from_url``."""

from tenon.compat.hub import load_state_dict_from_url as load_url
from tenon.compat.hub import tqdm

__all__ = ["load_url", "tqdm"]
