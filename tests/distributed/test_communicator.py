"""Every communicator of the repository passes the shipped suite."""

import numpy as np
import pytest

import tenon
from tenon.distributed.communication import threaded
from tenon.distributed.communication.local import LocalCommunicator
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.messages.coalesced import begin_all_reduce
from tenon.errors import ArgumentError, CommunicatorError
from tenon.testing.suites.communicator import CommunicatorSuite
from tenon.testing.suites.communicator_checks import CHECKS


class TestLocal(CommunicatorSuite):
    communicator = "local"
    sizes = (1,)


class TestThreaded(CommunicatorSuite):
    communicator = "threaded"
    sizes = (1, 3)


@pytest.mark.slow
class TestThreadedOfOtherSizes(CommunicatorSuite):
    communicator = "threaded"
    sizes = (2, 4)


@pytest.mark.mpi
class TestMpi(CommunicatorSuite):
    communicator = "mpi"
    sizes = (3,)


@pytest.mark.mpi
@pytest.mark.slow
class TestMpiOfOtherSizes(CommunicatorSuite):
    communicator = "mpi"
    sizes = (1, 2, 4)


@pytest.mark.mpi
@pytest.mark.slow
class TestMpiMessages(CommunicatorSuite):
    communicator = "mpi-messages"
    sizes = (2, 3)


@pytest.mark.mpi
@pytest.mark.slow
class TestMpiHierarchical(CommunicatorSuite):
    """Two nodes of two ranks, simulated on one machine."""

    communicator = "mpi-hierarchical"
    sizes = (4,)
    settings = (("TENON_MPI_NODES", "2"),)


@pytest.mark.mpi
@pytest.mark.slow
class TestUnevenNodes(CommunicatorSuite):
    """Three ranks on two simulated nodes: 2 and 1."""

    communicator = "mpi"
    sizes = (3,)
    settings = (("TENON_MPI_NODES", "2"),)


def test_an_option_that_is_not_a_reduction_is_named():
    with pytest.raises(CommunicatorError, match=r"<object object .*> is not a reduction"):
        begin_all_reduce(tenon.ones(2), object(), None)


def test_scatter_without_rows_on_the_root_is_an_error():
    with pytest.raises(ArgumentError, match=r"rows is None on its root, rank 0; pass 1 rows"):
        LocalCommunicator().scatter(None, np.empty(2))


def test_sums_from_left_to_right_are_found(monkeypatch):
    def from_the_left(arrays, op, target):
        total = arrays[0].copy()
        for each in arrays[1:]:
            total = total + each
        np.copyto(target, total)

    CHECKS["sums_have_the_bits_of_a_tree"](LocalCommunicator())
    run_ranks(4, CHECKS["sums_have_the_bits_of_a_tree"])
    monkeypatch.setattr(threaded, "reduce_into", from_the_left)
    with pytest.raises(AssertionError, match=r"another order of 3 sums in float32"):
        run_ranks(4, CHECKS["sums_have_the_bits_of_a_tree"])
