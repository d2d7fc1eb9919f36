"""torch's ``torch.backends.xnnpack``: a library for phones that is not called here."""

__all__: list[str] = []

enabled: bool = False
