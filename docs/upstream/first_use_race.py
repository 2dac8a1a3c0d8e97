"""Two threads use python-graphblas first: both initialise GraphBLAS.

The window between the question whether it is initialised and the call that does it is short. It is
held open until both threads are in it; without `together`, and with sys.setswitchinterval(1e-6),
some of ten runs fail.
"""

import sys
import threading

import graphblas as gb
import suitesparse_graphblas

initialize = suitesparse_graphblas.initialize


def together(**options):
    both.wait()
    with one:  # the library's own flag is not atomic either: both could succeed
        initialize(**options)


suitesparse_graphblas.initialize = together
start, both, faults = threading.Barrier(2), threading.Barrier(2, timeout=10), []
one = threading.Lock()


def first_use():
    start.wait()
    try:
        gb.Matrix.from_coo([0, 1], [1, 0], [1.0, 2.0])
    except Exception as err:
        faults.append(f"{type(err).__name__}: {err}")


threads = [threading.Thread(target=first_use) for _ in range(2)]
for each in threads:
    each.start()
for each in threads:
    each.join()
sys.exit("\n".join(faults) or None)
