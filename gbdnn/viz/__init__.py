"""Plots of runs, training and edge rates, with matplotlib.

    stats = []
    gbdnn.infer(layers, features, callback=stats.append)
    gbdnn.viz.plot_activity(stats, neurons=1024)

Every ``plot_`` function draws into the given axes, or into those of a new figure, and returns them:
``ax.figure.savefig("activity.png")``. New figures do not use pyplot and need no display.
`run_figure` combines two plots, `history_figure` three.

Curves differ in line style and marker and areas in hatches, not only in colour.
"""

from gbdnn.viz.edge_rates import plot_edge_rates
from gbdnn.viz.history import history_figure, plot_history
from gbdnn.viz.runs import plot_activity, plot_balance, plot_layer_times, run_figure

__all__ = [
    "history_figure",
    "plot_activity",
    "plot_balance",
    "plot_edge_rates",
    "plot_history",
    "plot_layer_times",
    "run_figure",
]
__dir__ = __all__.copy  # dir() lists the public names only
