"""Kernels in C, and what calls them: loading, records, prepared layers."""
