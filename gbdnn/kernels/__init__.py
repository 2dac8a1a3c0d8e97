"""Kernels, which compute one layer, and the blocks that they compute on."""
