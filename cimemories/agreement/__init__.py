"""How far people, models and judges agree, corrected for chance."""
