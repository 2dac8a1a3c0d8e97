"""How one layer is computed: a module per form."""
