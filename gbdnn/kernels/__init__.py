"""One layer, equation by equation: a module per kernel, and the blocks that kernels compute on."""
