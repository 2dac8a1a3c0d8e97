"""The fused kernel's inner loops, compiled by numba for the processor at hand and kept on disk."""
