"""Plots of runs and measurements, with matplotlib.

    stats = []
    gbdnn.infer(layers, features, callback=stats.append)
    gbdnn.viz.plot_activity(stats, neurons=1024)

Every ``plot_`` function draws into the axes that it is given, or into those of a new figure, and
returns them: ``ax.figure.savefig("activity.png")``. New figures are made without pyplot: they need
no display, and nothing is left behind. The ``_figure`` functions put several plots together.

Curves differ in line style and marker and areas in hatches, not in colour alone.
"""

from gbdnn.viz._files import require_plottable, save_figure
from gbdnn.viz._layers import plot_activity, plot_layer_times, run_figure
from gbdnn.viz._rates import plot_edge_rates
from gbdnn.viz._scaling import plot_thread_scaling, thread_scaling_figure

__all__ = [
    "plot_activity",
    "plot_edge_rates",
    "plot_layer_times",
    "plot_thread_scaling",
    "require_plottable",
    "run_figure",
    "save_figure",
    "thread_scaling_figure",
]
