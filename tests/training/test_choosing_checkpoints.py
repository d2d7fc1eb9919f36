"""Which checkpoint of a run folder is read, while a job writes and deletes others."""

import tenon
from tenon.distributed import checkpoint as distributed
from tenon.distributed.communication.local import LocalCommunicator
from tenon.serialize.checkpoint import write_checkpoint
from tenon.training import checkpoint
from tenon.training.parallel import saved


def folder_of(run, step):
    path = run / "checkpoints" / f"step-{step:08d}"
    distributed.save({"model": {"w": tenon.ones(2)}}, checkpoint_id=path, no_dist=True)
    return path


def file_of(run, step):
    path = run / "checkpoints" / f"step-{step:08d}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_checkpoint(path, {"model": {"w": tenon.ones(2)}})
    return path


def test_what_is_deleted_meanwhile_is_looked_up_again(tmp_path, monkeypatch):
    old, new = file_of(tmp_path, 1), tmp_path / "checkpoints" / "step-00000002.safetensors"
    problem = checkpoint._problem

    def another_job(path, rank, ranks):
        if path == old:
            file_of(tmp_path, 2)
            old.unlink(missing_ok=True)
        return problem(path, rank, ranks)

    monkeypatch.setattr(checkpoint, "_problem", another_job)

    assert checkpoint._newest(LocalCommunicator(), tmp_path) == (new, False)
    new.unlink()
    file_of(tmp_path, 1)
    assert checkpoint.newest_valid(tmp_path) == new


def test_the_one_that_was_written_is_kept_beside_newer_ones_that_may_be_damaged(tmp_path):
    damaged, written, old = folder_of(tmp_path, 9), folder_of(tmp_path, 5), file_of(tmp_path, 3)
    killed = folder_of(tmp_path, 4)
    (killed / "manifest.json").unlink()
    being_written = folder_of(tmp_path, 6)
    (being_written / "manifest.json").unlink()

    saved.remove_surplus(written, keep=1)

    assert saved.all_in(tmp_path / "checkpoints") == [damaged, written]
    assert being_written.exists() and not killed.exists() and not old.exists()
