"""PyTorch's path ``nn.modules.dropout``; the code is in ``tenon.nn.layers.dropout``."""

from tenon.nn.layers.dropout import Dropout, Dropout1d, Dropout2d, Dropout3d, _DropoutNd

__all__ = ["Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "_DropoutNd"]
