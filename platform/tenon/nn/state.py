"""``state_dict``, ``load_state_dict`` and the methods of them that third-party modules override.

A load is a transaction. First every module validates its keys and shapes and defers its copies
(``Transaction.later``); they are executed only if there is no error in the whole tree. Modules with custom
code are loaded immediately, because that code may read the loaded values or change the module: a class with
its own ``_load_from_state_dict`` or ``set_extra_state``, a module with a pre-hook, and everything below a
post-hook. Their previous state is saved first, and restored if the load fails.
"""

from __future__ import annotations

import functools
import re
import warnings
import weakref
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from tenon.engine.types import Forwarded
from tenon.errors import ModuleError, ModuleTypeError, StateDictError
from tenon.nn.convert import Conversion
from tenon.nn.hooks import EMPTY
from tenon.nn.parameter import is_lazy
from tenon.nn.transaction import Transaction
from tenon.tensors.autograd.handles import RemovableHandle
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    pass

EXTRA_STATE_KEY_SUFFIX = "_extra_state"
#: Keys of the stored tensors of a parametrized or pruned weight; the first group is the weight's own name.
_COMPUTED_FROM = re.compile(r"(?:parametrizations\.)?(\w+?)(?:\.original\d*|_orig|_g)$")
#: The state of a module tree by path: tensors, and what ``get_extra_state`` returns, of any type.
StateDict: TypeAlias = dict[str, Any]
#: What a state dict records of one module beside tensors: ``version``, and what hooks add.
Metadata: TypeAlias = dict[str, Any]
T_destination = TypeVar("T_destination", bound=StateDict)


class IncompatibleKeys(namedtuple("IncompatibleKeys", ("missing_keys", "unexpected_keys"))):
    """Result of ``load_state_dict``: the missing and the unexpected keys."""

    __slots__ = ()
    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        missing, unexpected = self
        return f"_IncompatibleKeys(missing_keys={missing!r}, unexpected_keys={unexpected!r})"

    __str__ = __repr__


class WrappedHook:
    """A hook that receives its module as first argument, but holds only a weak reference to it."""

    def __init__(self, hook: Callable[..., object], module: State | None = None) -> None:
        self.hook = hook
        functools.update_wrapper(self, hook)
        self.with_module = module is not None
        self.module: weakref.ref[State] | None = None if module is None else weakref.ref(module)

    def __call__(self, *args: Forwarded, **kwargs: Forwarded) -> object:
        """Call the hook, with its module if it was registered so."""
        if self.module is None:
            return self.hook(*args, **kwargs)
        module = self.module()
        if module is None:
            raise ModuleError("You are trying to call the hook of a dead Module!")
        return self.hook(module, *args, **kwargs)

    def __getstate__(self) -> dict[str, object]:
        return {"hook": self.hook, "module": None if self.module is None else self.module()}

    def __setstate__(self, state: dict[str, Any]) -> None:  # of ``__getstate__``
        WrappedHook.__init__(self, state["hook"], state["module"])


class State(Conversion):
    """Mixin of Module: saving and loading."""

    _version: int = 1
    dump_patches: bool = False
    T_destination = T_destination

    def get_extra_state(self) -> Any:  # subclasses choose the type
        """Return state other than tensors for ``state_dict``; override together with ``set_extra_state``."""
        raise ModuleError(
            f"{type(self).__name__} defines no get_extra_state, so there is no extra state. Override it,"
            " and set_extra_state, to keep more than tensors in state_dict()."
        )

    def set_extra_state(self, state: Any) -> None:  # subclasses choose the type
        """Restore state that ``get_extra_state`` returned."""
        raise ModuleError(
            f"{type(self).__name__} defines no set_extra_state, so it cannot take {type(state).__name__!r} "
            "back. "
            "Override it together with get_extra_state."
        )

    # Saving.

    def _save_to_state_dict(self, destination: StateDict, prefix: str, keep_vars: bool) -> None:
        """Write this module's own state, not its children's, into ``destination``."""
        for name, parameter in self._parameters.items():
            if parameter is not None:
                destination[prefix + name] = parameter if keep_vars else parameter.detach()
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = buffer if keep_vars else buffer.detach()
        if overrides(self, "get_extra_state"):
            destination[prefix + EXTRA_STATE_KEY_SUFFIX] = self.get_extra_state()

    def state_dict(
        self, *args: Forwarded, destination: StateDict | None = None, prefix: str = "",
        keep_vars: bool = False,
    ) -> StateDict:  # fmt: skip
        """Return all parameters and persistent buffers of the module tree by path: references, not copies.

        Tensors are detached unless ``keep_vars``. Positional arguments are deprecated.
        """
        if args:
            warnings.warn(
                "Positional args are being deprecated, use kwargs instead. Refer to "
                "https://pytorch.org/docs/main/generated/torch.nn.Module.html#torch.nn.Module.state_dict for "
                "details.",
                FutureWarning,
                stacklevel=2,
            )
            named = dict(zip(("destination", "prefix", "keep_vars"), args, strict=False))
            destination = named["destination"] if destination is None else destination
            prefix = named.get("prefix", prefix) if prefix == "" else prefix
            keep_vars = named.get("keep_vars", keep_vars) if keep_vars is False else keep_vars
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()  # type: ignore[attr-defined]
        local_metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local_metadata
        attribute = self.__dict__.get
        for hook in list(attribute("_state_dict_pre_hooks", EMPTY).values()):
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, child in self._modules.items():
            if child is not None:
                child.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in list(attribute("_state_dict_hooks", EMPTY).values()):
            returned = hook(self, destination, prefix, local_metadata)
            if returned is not None:
                if getattr(hook, "_from_public_api", False):
                    raise ModuleError("state_dict post-hook must return None")
                destination = returned
        return destination

    # Loading.

    def _load_from_state_dict(
        self, state_dict: StateDict, prefix: str, local_metadata: Metadata, strict: bool,
        missing_keys: list[str], unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:  # fmt: skip
        """Load this module's own state, not its children's, from ``state_dict``; append errors to lists."""
        for hook in list(self.__dict__.get("_load_state_dict_pre_hooks", EMPTY).values()):
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        local_state: dict[str, Tensor] = {
            name: value for name, value in self._parameters.items() if value is not None
        }
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                local_state[name] = buffer
        assign = bool(local_metadata.get("assign_to_params_buffers", False))
        for name, member in local_state.items():
            key = prefix + name
            if key in state_dict:
                _load_tensor(self, name, member, key, state_dict[key], assign, error_msgs)
            elif strict:
                missing_keys.append(key)
        extra = prefix + EXTRA_STATE_KEY_SUFFIX
        if overrides(self, "set_extra_state"):
            if extra in state_dict:
                self.set_extra_state(state_dict[extra])
            elif strict:
                missing_keys.append(extra)
        elif strict and extra in state_dict:
            unexpected_keys.append(extra)
        if strict:
            for key in state_dict:
                if key.startswith(prefix) and key != extra:
                    first, dot, _ = key[len(prefix) :].partition(".")
                    if first not in (self._modules if dot else local_state):
                        unexpected_keys.append(key)

    def load_state_dict(
        self, state_dict: Mapping[str, object], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Copy (with ``assign``, assign) the tensors of ``state_dict`` into this module; atomic.

        ``strict`` raises for missing and unexpected keys. Returns both lists. On any error the module is
        unchanged: keys and shapes of the whole tree are checked before the first value is written.
        """
        if not isinstance(state_dict, Mapping):
            raise ModuleTypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        keys = IncompatibleKeys([], [])
        errors: list[str] = []
        metadata = getattr(state_dict, "_metadata", None)
        copied: Any = OrderedDict(state_dict)  # with the attribute ``_metadata``
        if metadata is not None:
            copied._metadata = metadata
        with Transaction() as transaction:
            _load(self, copied, "", False, _LoadArguments(transaction, metadata or {}, assign, keys, errors))
            if strict:
                for title, names in (("Unexpected", keys.unexpected_keys), ("Missing", keys.missing_keys)):
                    if names:
                        listed = ", ".join(f'"{name}"' for name in names)
                        errors.insert(0, f"{title} key(s) in state_dict: {listed}. ")
            if not errors:
                transaction.carry_out(errors)
            if errors:
                joined = "\n\t".join(errors)
                raise StateDictError(
                    "Error(s) in loading state_dict for "
                    f"{type(self).__name__}:\n\t{joined}{_advice(keys, strict)}"
                )
        return keys

    # Hooks.

    def _register_state_dict_hook(self, hook: Callable[..., object]) -> RemovableHandle:
        """Call ``hook`` after saving; a dict that a hook of the root returns replaces the state dict."""
        if getattr(hook, "_from_public_api", False):
            raise ModuleError(
                "Cannot register the same function as the state dict post hook that was previously "
                "registered via "
                "register_state_dict_post_hook"
            )
        return self._add_state_hook("_state_dict_hooks", hook)

    def register_state_dict_post_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Call ``hook(module, state_dict, prefix, local_metadata)`` after saving; it returns None."""
        hook._from_public_api = True  # type: ignore[attr-defined]
        return self._add_state_hook("_state_dict_hooks", hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., object]) -> RemovableHandle:
        """Call ``hook(module, prefix, keep_vars)`` before saving."""
        return self._add_state_hook("_state_dict_pre_hooks", hook)

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., object], with_module: bool = False
    ) -> RemovableHandle:
        """Call ``hook`` before loading; its first argument is the module only if ``with_module``."""
        return self._add_state_hook(
            "_load_state_dict_pre_hooks", WrappedHook(hook, self if with_module else None)
        )

    def register_load_state_dict_pre_hook(self, hook: Callable[..., object]) -> RemovableHandle:
        """Before loading call ``hook(module, state_dict, prefix, local_metadata, strict, missing_keys,
        unexpected_keys, error_msgs)``; it may change the dict and the lists in place.
        """
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def register_load_state_dict_post_hook(self, hook: Callable[..., object]) -> RemovableHandle:
        """Call ``hook(module, incompatible_keys)`` after loading; it may change the two lists in place."""
        return self._add_state_hook("_load_state_dict_post_hooks", hook)

    def _add_state_hook(self, kind: str, hook: Callable[..., object]) -> RemovableHandle:
        """Add ``hook`` to the dictionary of the attribute ``kind``."""
        hooks = getattr(self, kind)
        handle = RemovableHandle(hooks)
        hooks[handle.id] = hook
        return handle


def overrides(module: State, name: str) -> bool:
    """Return whether the module's class overrides Module's method ``name``."""
    return getattr(type(module), name) is not getattr(State, name)


class _LoadArguments(NamedTuple):
    """Arguments that one ``load_state_dict`` passes down the module tree."""

    transaction: Transaction
    metadata: Mapping[str, Metadata]
    assign: bool
    keys: IncompatibleKeys
    errors: list[str]


# ``module`` is a Module, which has the mixin State.
def _load(module: Any, state_dict: StateDict, prefix: str, at_once: bool, arguments: _LoadArguments) -> None:
    """Load ``module`` and its descendants; ``at_once`` if a post-hook of an ancestor may read the values."""
    post_hooks = list(module.__dict__.get("_load_state_dict_post_hooks", EMPTY).values())
    custom = (
        overrides(module, "_load_from_state_dict")
        or overrides(module, "set_extra_state")
        or bool(module.__dict__.get("_load_state_dict_pre_hooks"))
    )
    at_once = at_once or bool(post_hooks)
    metadata = dict(arguments.metadata.get(prefix[:-1], {}))
    if arguments.assign:
        metadata["assign_to_params_buffers"] = True
    with arguments.transaction.immediately(module if custom or at_once else None):
        module._load_from_state_dict(state_dict, prefix, metadata, True, *arguments.keys, arguments.errors)
    for name, child in module._modules.items():
        if child is not None:
            below = f"{prefix}{name}."
            _load(
                child, {k: v for k, v in state_dict.items() if k.startswith(below)}, below, at_once, arguments
            )
    for hook in post_hooks:
        if hook(module, arguments.keys) is not None:
            raise AssertionError(
                "Hooks registered with ``register_load_state_dict_post_hook`` are not expected to return new "
                "values, "
                "if incompatible_keys need to be modified, it should be done inplace."
            )


def _load_tensor(
    # ``module`` is a Module, which has the mixin State.
    module: Any,
    name: str,
    member: Tensor,
    key: str,
    value: object,
    assign: bool,
    errors: list[str],
) -> None:
    """Validate one tensor and defer its copy or assignment."""
    if not isinstance(value, Tensor):
        errors.append(
            f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like object '
            f"from checkpoint but received {type(value)}"
        )
        return
    if is_lazy(member) and is_lazy(value):
        return  # both are uninitialized
    if not is_lazy(member):
        if len(member.shape) == 0 and tuple(value.shape) == (1,):
            value = value[0]
        if is_lazy(value) or value.shape != member.shape:
            if is_lazy(value):
                errors.append(
                    f"size mismatch for {key}: Can't access the shape of an uninitialized parameter or "
                    "buffer: the checkpoint was made before the first call of a lazy module, this model has "
                    f"{member.shape}. Call that module once with a dummy batch before saving it."
                )
            else:
                errors.append(
                    f"size mismatch for {key}: copying a param with shape {value.shape} from checkpoint, the "
                    f"shape in current model is {member.shape}."
                )
            return
        if member.device.type == "meta" and value.device.type != "meta" and not assign:
            warnings.warn(
                f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter in the "
                "current "
                "model, which is a no-op. (Did you mean to pass `assign=True` to assign items in the state "
                "dictionary "
                "to their corresponding key in the module instead of copying them in place?)",
                stacklevel=2,
            )
            return
    Transaction.later(key, module, name, member, value, assign, errors)


def _advice(keys: IncompatibleKeys, strict: bool) -> str:
    """Return advice to append to the list of errors."""
    text = "\nNothing was loaded: the module is unchanged."
    if strict and keys.unexpected_keys and all(key.startswith("module.") for key in keys.unexpected_keys):
        return f'{text} All keys start with "module.": a data-parallel wrapper saved them; strip that prefix.'
    if strict and (keys.missing_keys or keys.unexpected_keys):
        return f"{text}{_parametrization_advice(keys)} Pass strict=False to load the keys that do match."
    return text


def _parametrization_advice(keys: IncompatibleKeys) -> str:
    """Return advice if a weight is parametrized or pruned in only one of module and checkpoint."""
    in_model, in_checkpoint = (
        {_COMPUTED_FROM.sub(r"\1", key) for key in side} & set(other) for side, other in (keys, keys[::-1])
    )
    if in_model:
        return (
            f" {sorted(in_model)[0]!r} is parametrized or pruned in this model and not in the checkpoint:"
            " load it before registering that, or assign the tensor to the attribute."
        )
    if in_checkpoint:
        return (
            f" {sorted(in_checkpoint)[0]!r} is parametrized or pruned in the checkpoint and not in this"
            " model: register the same steps first, or remove them before saving."
        )
    return ""
