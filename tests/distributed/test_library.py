"""What is set before MPI starts: short addresses where Slurm would cut long ones, and nowhere else."""

from importlib import metadata

import pytest

from tenon_mpi.library import shorten_addresses

STEP = {"SLURM_STEP_NUM_NODES": "2", "PMI_FD": "11"}


@pytest.mark.parametrize(
    ("environment", "chosen"),
    [
        (STEP, "ofi"),
        ({**STEP, "MPIR_CVAR_CH4_NETMOD": "ucx"}, "ucx"),
        ({**STEP, "SLURM_STEP_NUM_NODES": "1"}, None),
        ({"SLURM_STEP_NUM_NODES": "2"}, None),
        ({"PMI_FD": "11"}, None),
    ],
    ids=["several nodes", "told otherwise", "one node", "another protocol", "mpirun"],
)
def test_only_the_ranks_of_srun_on_several_nodes_get_short_addresses(environment, chosen):
    if not any(metadata.distributions(name="mpich")):
        pytest.skip("the MPICH wheel is not installed")
    found = dict(environment)
    shorten_addresses(found)

    assert found.get("MPIR_CVAR_CH4_NETMOD") == chosen
