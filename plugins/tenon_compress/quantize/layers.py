"""Quantized layers, for inference: they have no parameters to train.

The memory of their weights is read-only, so that a backend packs it once. Loading, moving and copying
therefore replace the tensors instead of writing into them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Self

from tenon import Tensor, arange, float32, int8, ones, ops, zeros
from tenon.extend import Nested, pytree
from tenon.nn.functional import embedding_bag
from tenon.nn.module import Module
from tenon_compress.quantize.integers import from_int8, to_int8

if TYPE_CHECKING:
    from tenon import dtype


def freeze(tensor: Tensor) -> None:
    """Make the memory of ``tensor`` read-only, where the array library supports that."""
    array = tensor.raw
    if getattr(array, "base", None) is None and hasattr(array, "setflags"):
        array.setflags(write=False)


def in_float32(call: Callable[..., Nested], *args: Nested) -> Nested:
    """Return ``call(*args)`` computed in float32; results have the dtype of the first tensor."""
    own = next((t.dtype for t in pytree.tree_leaves(args) if isinstance(t, Tensor)), None)
    if own is None or own is float32 or not own.is_floating_point:
        return call(*args)

    def cast(nest: Nested, dtype: dtype) -> Nested:
        return pytree.tree_map_only(Tensor, lambda t: t.to(dtype) if t.is_floating_point() else t, nest)

    return cast(call(*cast(args, float32)), own)


class QuantizedLayer(Module):
    """A layer whose tensors are read-only buffers; ``numbers()`` are the arguments that construct it."""

    #: The dtype of float results, that of the layer that was quantized.
    floats: dtype = float32
    no_steps: ClassVar[str] = "it is of few bits. Prune and parametrize first, then quantize."

    def set_buffers(self, **tensors: Tensor | None) -> None:
        """Register copies of ``tensors`` as buffers; None is an absent buffer."""
        for name, tensor in tensors.items():
            self.register_buffer(name, None if tensor is None else tensor.detach().clone())
        self._freeze()

    def stored(self, name: str) -> Tensor:
        """The buffer ``name`` as it is stored, which reading the attribute may convert to floats."""
        buffer = self._buffers[name]
        assert buffer is not None
        return buffer

    def __getattr__(self, name: str) -> Any:  # of any attribute, as in Module
        """Return weights and biases as floats, for code that reads them itself, such as tied outputs."""
        buffer = self.__dict__.get("_buffers", {}).get(name)
        if buffer is None or not name.startswith(("weight", "bias")) or name.endswith("scale"):
            return super().__getattr__(name)
        if buffer.dtype is int8:
            scale = self.stored("scale" if name == "weight" else f"{name}_scale")
            buffer = from_int8(buffer, scale)
        return buffer.to(self.floats)

    def numbers(self) -> dict[str, object]:
        """The arguments of the constructor, as plain values by name."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        """The constructor's arguments."""
        return ", ".join(f"{name}={value}" for name, value in self.numbers().items())

    def _freeze(self) -> None:
        for buffer in self._buffers.values():
            if buffer is not None:
                freeze(buffer)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move to another device; tensors keep their dtypes, and a new dtype applies to ``floats``."""
        self.floats = fn(zeros(0, dtype=self.floats)).dtype

        def move(tensor: Tensor) -> Tensor:
            converted = fn(tensor)
            return converted if converted.dtype is tensor.dtype else tensor.to(converted.device)

        super()._apply(move, recurse)
        self._freeze()
        return self

    def __setstate__(self, state: dict[str, object]) -> None:
        super().__setstate__(state)
        self._freeze()

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],  # tensors, and extra state of any type
        prefix: str,
        local_metadata: dict[str, object],
        *rest: Any,  # lists and flags, which Module reads
    ) -> None:
        """Assign copies of the loaded tensors, which need the kind of numbers that the layer stores."""
        stored = {
            prefix + n: b for n, b in self._buffers.items() if b is not None and prefix + n in state_dict
        }
        wrong = [_misfit(name, buffer, state_dict[name]) for name, buffer in stored.items()]
        if any(wrong):
            rest[-1].extend(filter(None, wrong))
            return
        own = dict(state_dict)
        for name, buffer in stored.items():
            own[name] = state_dict[name].detach().to(buffer.dtype, copy=True)
        assigning = {**local_metadata, "assign_to_params_buffers": True}
        super()._load_from_state_dict(own, prefix, assigning, *rest)
        self._freeze()


def _misfit(name: str, buffer: Tensor, loaded: object) -> str | None:
    """Why ``loaded`` cannot take the place of ``buffer``; None if it can."""
    if not isinstance(loaded, Tensor):
        return f"{name} is {type(loaded).__name__}, not a tensor."
    if loaded.dtype is not buffer.dtype and not (loaded.is_floating_point() and buffer.is_floating_point()):
        return (
            f"{name} is {loaded.dtype}, and a quantized layer stores {buffer.dtype} there. Load what a"
            " quantized model has saved, or load the floats first and quantize then."
        )
    return None


class DynamicLinear(QuantizedLayer):
    """``Linear`` with int8 weights; the input is quantized to int8 by its largest magnitude at each call."""

    weight: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.set_buffers(
            weight=zeros(out_features, in_features, dtype=int8),
            scale=ones(out_features, dtype=float32),
            bias=zeros(out_features, dtype=float32) if bias else None,
        )

    @classmethod
    def of(cls, linear: Module) -> Self:
        """Return the quantized layer of an ``nn.Linear``."""
        quantized = cls(linear.in_features, linear.out_features, linear.bias is not None)
        weight, scale = to_int8(linear.weight)
        quantized.set_buffers(
            weight=weight, scale=scale, bias=None if linear.bias is None else linear.bias.to(float32)
        )
        return quantized.train(linear.training)

    def numbers(self) -> dict[str, object]:
        """The sizes and bias."""
        return {
            "in_features": self.in_features, "out_features": self.out_features, "bias": self.bias is not None,
        }  # fmt: skip

    def forward(self, input: Tensor) -> Tensor:
        """Map ``input[..., in_features]`` to ``[..., out_features]``."""
        buffers = self._buffers
        return ops.int8_dynamic_linear(input, buffers["weight"], buffers["scale"], buffers["bias"])


class QuantizedEmbedding(QuantizedLayer):
    """``Embedding`` with rows of int8, each with its scale."""

    weight: Tensor
    scale: Tensor

    def __init__(self, num_embeddings: int, embedding_dim: int) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.set_buffers(
            weight=zeros(num_embeddings, embedding_dim, dtype=int8), scale=ones(num_embeddings, dtype=float32)
        )

    @classmethod
    def of(cls, embedding: Module) -> Self:
        """Return the quantized layer of an ``nn.Embedding`` without ``max_norm``."""
        quantized = cls(embedding.num_embeddings, embedding.embedding_dim)
        weight, scale = to_int8(embedding.weight)
        quantized.set_buffers(weight=weight, scale=scale)
        return quantized.train(embedding.training)

    def numbers(self) -> dict[str, object]:
        """The sizes."""
        return {"num_embeddings": self.num_embeddings, "embedding_dim": self.embedding_dim}

    def forward(self, input: Tensor) -> Tensor:
        """Return the rows at the indices ``input``."""
        rows = from_int8(
            self.stored("weight")[input].reshape(-1, self.embedding_dim), self.scale[input].reshape(-1)
        )
        return rows.reshape(*input.shape, self.embedding_dim).to(self.floats)


class QuantizedEmbeddingBag(QuantizedLayer):
    """``EmbeddingBag`` with int8 rows, each with its scale; only requested ones become floats."""

    weight: Tensor
    scale: Tensor

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        mode: str,
        include_last_offset: bool,
        padding_idx: int | None,
    ) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.mode, self.include_last_offset, self.padding_idx = mode, include_last_offset, padding_idx
        self.set_buffers(
            weight=zeros(num_embeddings, embedding_dim, dtype=int8), scale=ones(num_embeddings, dtype=float32)
        )

    @classmethod
    def of(cls, bag: Module) -> Self:
        """Return the quantized layer of an ``nn.EmbeddingBag`` without ``max_norm``."""
        quantized = cls(*(getattr(bag, name) for name in _BAG))
        weight, scale = to_int8(bag.weight)
        quantized.set_buffers(weight=weight, scale=scale)
        return quantized.train(bag.training)

    def numbers(self) -> dict[str, object]:
        """The sizes and the options of bags."""
        return {name: getattr(self, name) for name in _BAG}

    def forward(
        self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        """Return the reduced bags of ``input``, as the float layer does."""
        flat = input.reshape(-1)
        table = self.stored("weight"), self.scale
        rows = from_int8(*(ops.cat(each[:1], each[flat], axis=0) for each in table))
        positions = arange(1, flat.numel() + 1, device=input.device)  # row 0 is the padding's
        if self.padding_idx is not None:
            positions = positions.masked_fill(flat == self.padding_idx, 0)
        return embedding_bag(
            positions.reshape(input.shape), rows.to(self.floats), offsets, mode=self.mode,
            per_sample_weights=per_sample_weights, include_last_offset=self.include_last_offset,
            padding_idx=None if self.padding_idx is None else 0,
        )  # fmt: skip


#: The constructor arguments of a bag that affect its results, in order.
_BAG = ("num_embeddings", "embedding_dim", "mode", "include_last_offset", "padding_idx")
