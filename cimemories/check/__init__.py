"""Privacy regression for CI: budgets and named flows from one file, decided on a run (docs/check.md)."""
