"""A caller's matrices as arrays of ours: checks, sparse rows, GraphBLAS's threads and first use."""
