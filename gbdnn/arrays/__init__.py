"""A caller's matrices as arrays of ours: checks, and sparse rows that are stacked or stored."""
