"""Batches of inputs on the workers of an executor of ``concurrent.futures``, or of Dask.

`workers` describes the executor, `tasks` is what a worker gets and computes, `batches` divides the
inputs and keeps a bounded number of tasks in flight, `parts` writes the answers into a store.
"""
