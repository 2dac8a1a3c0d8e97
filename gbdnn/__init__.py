"""Sparse deep neural network inference in the language of GraphBLAS."""

__version__ = "0.1.0.dev0"
