"""Read what runs of `tenon train` with a section [parallel] leave behind."""

from pathlib import Path

import tenon
from tenon.distributed.checkpoint.state_dict_loader import load_whole
from tenon.serialize.checkpoint import read_checkpoint
from tenon.training import checkpoint


def sections(run_folder):
    """The newest checkpoint of a run, as one rank would have written it: whole tensors."""
    newest = checkpoint.newest_valid(Path(run_folder))
    return load_whole(checkpoint_id=newest) if newest.is_dir() else read_checkpoint(newest)


def weights(run):
    assert run.code == 0, run.err
    model = sections(run.folder)["model"]
    return tenon.cat([model[name].reshape(-1).double() for name in sorted(model)]).numpy()


def settings(**values):
    """``settings(shard=2)``: the options of the command that set keys of the section [parallel]."""
    return [text for key, value in values.items() for text in ("--set", f"parallel.{key}={value}")]
