"""Many inputs through many layers, on one machine."""
