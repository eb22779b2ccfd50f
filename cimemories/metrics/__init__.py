"""Violation@n, completeness and what is computed with them: intervals, heatmaps, accumulation, breakdowns."""
