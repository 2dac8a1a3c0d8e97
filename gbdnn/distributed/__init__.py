"""Many processes and machines, on engines that exist: MPI's ranks."""
