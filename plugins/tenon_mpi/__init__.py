"""MPI communicator for tenon, through mpi4py."""
