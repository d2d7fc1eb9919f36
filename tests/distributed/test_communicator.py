"""Every communicator of the repository passes the shipped suite."""

import numpy as np
import pytest

import tenon
from tenon.distributed.communication.local import LocalCommunicator
from tenon.distributed.messages.coalesced import begin_all_reduce
from tenon.errors import ArgumentError, CommunicatorError
from tenon.testing.suites.communicator import CommunicatorSuite


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
