"""PyTorch's module ``torch.utils._dtype_abbrs``: the short names of dtypes in listings of ops."""

from tenon.dtypes import ALL, NAMED

__all__: list[str] = []

_LETTERS = {"bfloat": "bf", "float": "f", "complex": "c", "uint": "u", "int": "i"}


def _short(name: str) -> str:
    for word, letter in _LETTERS.items():
        if name.startswith(word):
            return letter + name.removeprefix(word).replace("_", "")
    return "b8" if name == "bool" else name


#: ``torch.float32`` -> ``"f32"``.
dtype_abbrs = {d: _short(d.name) for d in (*ALL, *NAMED.values()) if not d.name.startswith("q")}
