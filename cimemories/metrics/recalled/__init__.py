"""Stored, recalled, said: where between memory and message a leak was stopped, and where completeness was lost."""
