"""Batches of inputs on the workers of an executor of ``concurrent.futures``, or of Dask.

`workers` describes the executor, `tasks` defines the work of a worker, `batches` divides the inputs
and keeps a bounded number of tasks in flight, and `parts` writes answers to a store.
"""
