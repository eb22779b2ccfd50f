"""Runs beside each other: leaderboard, differences, sweeps, sensitivity."""
