"""The Graph Challenge's tab-separated files: matrices, categories and networks."""
