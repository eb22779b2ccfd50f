"""Questions about the record: flows, labels, metrics, heatmaps. Pure functions of what is recorded."""
