"""Measurements of calls by number of threads.

    study = gbdnn.scaling(lambda n: gbdnn.infer(net, X, nthreads=n))
    print(study)

`gbdnn.scaling` returns a `Scaling`.
"""

from gbdnn.thread_scaling.measure import in_context
from gbdnn.thread_scaling.study import Scaling

__all__ = ["Scaling", "in_context"]
__dir__ = __all__.copy  # dir() lists the public names only
