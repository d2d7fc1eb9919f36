"""torch.utils: tools around training. Submodules load at their first use (``tenon.utils.data``)."""
