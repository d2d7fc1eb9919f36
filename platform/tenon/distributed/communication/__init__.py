"""Communication between ranks: communicators, their calls, reductions, and the process's communicator."""
