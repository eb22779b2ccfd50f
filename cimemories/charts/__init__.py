"""The Plotly figures of comparisons, each with its takeaway and its table."""
