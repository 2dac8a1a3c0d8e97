"""Layers on the ranks of MPI.

`pipeline` is the public call, `stages` computes the layers of one rank and chooses which ones they
are, `ranks` sends rows between ranks and raises an error of one rank on all.
"""
