"""The paths from which PyTorch code imports names exist here."""

import importlib
import subprocess
import sys

import pytest

PATHS = [
    ("utils.hooks", "RemovableHandle", "core.handle"),
    ("utils._pytree", "tree_map", "core.pytree"),
    ("utils.data", "Dataset", "data"),
    ("utils.data", "TensorDataset", "data"),
    ("utils.data.dataset", "TensorDataset", "data"),
    ("utils.data.distributed", "DistributedSampler", "distributed.sampler"),
    ("serialization", "load", "serialize"),
    ("types", "Tensor", "core.tensor"),
    ("nn.modules.module", "_global_forward_hooks", "nn.hooks"),
    ("nn.modules.linear", "LazyLinear", "nn"),
    ("nn.modules.dropout", "AlphaDropout", "nn"),
    ("nn.modules.conv", "_ConvNd", "nn.layers.conv"),
    ("nn.parameter", "UninitializedBuffer", "nn"),
    ("autograd.profiler_util", "EventList", "autograd.profiler"),
    ("optim.adam", "Adam", "optim"),
    ("optim.adamw", "AdamW", "optim"),
    ("optim.lbfgs", "LBFGS", "optim"),
    ("optim._adafactor", "Adafactor", "optim"),
    ("optim._muon", "Muon", "optim"),
    ("optim.sgd", "SGD", "optim"),
    ("optim.sgd", "Optimizer", "optim"),
    ("storage", "UntypedStorage", "core.storage"),
    ("utils.data", "IterDataPipe", "utils.data.datapipes.iter"),
    ("utils.data._utils", "ExceptionWrapper", "_utils"),
    ("utils.data._utils.worker", "get_worker_info", "data"),
    ("ao.quantization", "quantize_dynamic", "quantization"),
    ("nn.utils.stateless", "functional_call", "func"),
]


@pytest.mark.together
@pytest.mark.parametrize(("path", "name", "home"), PATHS)
def test_torchs_path_leads_home(path, name, home):
    face = importlib.import_module(f"tenon.{path}")
    found = getattr(importlib.import_module(f"tenon.{home}"), name)

    if name == "functional_call":  # the older one has one more argument
        assert callable(getattr(face, name))
    else:
        assert getattr(face, name) is found


@pytest.mark.parametrize(
    "path", ["autograd.gradcheck", "nn.utils.spectral_norm", "nn.parallel.data_parallel"]
)
def test_a_function_stays_where_its_module_is_imported_by_another_name(path):
    package, _, name = f"tenon.{path}".rpartition(".")
    parent, module = importlib.import_module(package), importlib.import_module(f"tenon.{path}")
    function = getattr(module, name)

    setattr(parent, name, module)  # what an importer does
    assert getattr(parent, name) is function
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parent, name, len)
        assert getattr(parent, name) is len
    assert getattr(parent, name) is function


def test_a_submodule_of_utils_is_an_attribute_without_an_import_of_its_own():
    code = (
        "import tenon as torch; torch.utils.data.DataLoader; torch.utils.checkpoint.checkpoint;"
        "torch.utils.data.distributed.DistributedSampler; torch.utils.data.dataloader.default_collate;"
        "torch.utils.data.dataset.Dataset; torch.utils.data.sampler.Sampler"
    )

    subprocess.run([sys.executable, "-c", code], check=True)
    assert not hasattr(importlib.import_module("tenon.utils"), "loader")


def test_a_path_to_one_optimizer_does_not_lead_to_others():
    assert not hasattr(importlib.import_module("tenon.optim.sgd"), "Adam")


def test_extensions_of_pytorch_cannot_be_loaded_and_libraries_can_go_on():
    from tenon import ops

    with pytest.raises(OSError, match=r"'image\.so'.*compiled for PyTorch"):
        ops.load_library("image.so")


def test_collectives_with_gradients_are_names_of_their_package_too():
    from tenon.distributed import nn
    from tenon.distributed.nn import functional

    assert nn.all_reduce is functional.all_reduce and nn.all_to_all_single is functional.all_to_all_single
    assert not hasattr(nn, "all_reduced")
