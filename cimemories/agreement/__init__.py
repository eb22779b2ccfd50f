"""Agreement of people, models and judges, corrected for chance."""
