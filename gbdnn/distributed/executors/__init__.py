"""Batches of inputs on workers that exist: any executor of ``concurrent.futures``, or Dask's.

`workers` knows what workers there are, `batches` cuts inputs into batches, `in_flight` submits them
and takes what comes back, `worker` computes one where the weights are kept, `answers` and `parts`
put it together, in memory and in a store; `checkpoint` keeps a batch whose network is streamed.
"""
