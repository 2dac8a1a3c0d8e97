"""Layers over the ranks of MPI.

`pipeline` is the call, `cuts` chooses which layers a rank holds, `transport` carries rows between
ranks, `agreement` makes an error on one rank one on all.
"""
