"""Runtime: initialisation of GraphBLAS, threads, cores, optional packages."""
