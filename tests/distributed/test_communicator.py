"""Every communicator of the repository passes the shipped suite."""

import pytest

from tenon.testing.suites.communicator import CommunicatorSuite


class TestLocal(CommunicatorSuite):
    communicator = "local"
    sizes = (1,)


class TestThreaded(CommunicatorSuite):
    communicator = "threaded"
    sizes = (1, 2, 3, 4)


@pytest.mark.mpi
class TestMpi(CommunicatorSuite):
    communicator = "mpi"
    sizes = (1, 2, 3, 4)
