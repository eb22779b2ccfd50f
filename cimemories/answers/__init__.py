"""Questions about results, a module each: a function that asks, and the `Answer` that it returns."""
