"""One layer, equation by equation: a module per form, and the blocks that the forms compute on."""
