"""The Graph Challenge's tab-separated files: matrices, categories, whole networks."""
