"""Validation of arguments, conversion of matrices, and sparse rows."""
