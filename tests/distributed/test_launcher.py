"""Rank and size from the variables of each launcher, and from no similar variables."""

import pytest

from tenon.distributed.processes.launcher import RankFacts, detect
from tenon.errors import LaunchError

HYDRA = {"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}
SLURM = {
    "SLURM_PROCID": "5",
    "SLURM_STEP_NUM_TASKS": "7",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "2(x3),1",
    "SLURM_NODEID": "2",
}
PALS = {"PALS_RANKID": "2", "PMI_SIZE": "4", "PALS_LOCAL_RANKID": "0", "PALS_LOCAL_SIZE": "2"}


@pytest.mark.parametrize(
    ("environment", "facts"),
    [
        (HYDRA, RankFacts("mpirun", 1, 4, 1, 2)),
        (OPENMPI, RankFacts("mpirun", 3, 8, 1, 2)),
        (SLURM, RankFacts("srun", 5, 7, 1, 2)),
        (PALS, RankFacts("mpirun", 2, 4, 0, 2)),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "SLURM_LOCALID": "1"}, RankFacts("mpirun", 1, 2, 1, 2)),
        ({**SLURM, **OPENMPI}, RankFacts("mpirun", 3, 8, 1, 2)),
    ],
    ids=["hydra", "openmpi", "srun", "pals", "srun-pmi2", "mpirun-inside-slurm"],
)
def test_each_launcher_is_recognised(environment, facts):
    assert detect(environment) == facts


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "16", "SLURM_LOCALID": "0"},  # a batch script, not a step
        {"RANK": "1", "WORLD_SIZE": "2"},
        {"PMI_RANK": "0"},
        {"PMI_RANK": "", "PMI_SIZE": ""},
    ],
    ids=["nothing", "sbatch", "torchrun", "half", "empty"],
)
def test_a_process_without_a_launcher_is_alone(environment):
    assert detect(environment) is None


def test_the_last_node_of_a_slurm_step_has_its_own_task_count():
    assert detect({**SLURM, "SLURM_PROCID": "6", "SLURM_NODEID": "3", "SLURM_LOCALID": "0"}).local_size == 1


def test_a_variable_that_is_not_a_number_is_named():
    with pytest.raises(LaunchError, match="PMI_RANK='x' is not a number"):
        detect({**HYDRA, "PMI_RANK": "x"})


def test_a_rank_outside_its_world_is_refused():
    with pytest.raises(LaunchError, match="rank 4 of 4"):
        detect({**HYDRA, "PMI_RANK": "4"})
