"""What a network is: layers, what is known of them without their weights, how they are read."""
