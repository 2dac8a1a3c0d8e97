"""What runs beneath: GraphBLAS and its first use, threads, cores, packages that may be missing."""
