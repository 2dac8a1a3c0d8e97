"""Networks: layers, their properties without the weights, and how they are read."""
