"""What `forked` imports before it forks: gbdnn, and GraphBLAS on one thread."""

import gbdnn.kernels.compiled.loading  # noqa: F401
from gbdnn.runtime.first_use import gb

NTHREADS = gb.ss.config["nthreads"]
gb.ss.config["nthreads"] = 1
