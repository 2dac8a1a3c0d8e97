"""Plots of runs and training, with matplotlib.

    stats = []
    gbdnn.infer(layers, features, callback=stats.append)
    gbdnn.viz.plot_activity(stats, neurons=1024)

Every ``plot_`` function draws into the given axes, or into those of a new figure, and returns them:
``ax.figure.savefig("activity.png")``. New figures do not use pyplot and need no display.

Curves differ in line style and marker and areas in hatches, not only in colour.
"""

from gbdnn.viz.history import plot_history
from gbdnn.viz.runs import plot_activity, plot_layer_times

__all__ = ["plot_activity", "plot_history", "plot_layer_times"]
__dir__ = __all__.copy  # dir() lists the public names only
